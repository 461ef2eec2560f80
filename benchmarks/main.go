package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	if addr := os.Getenv(boundAddr); addr != "" {
		if err := runBound(addr, os.Getenv(boundDir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	var (
		cases   = flags.String("cases", "", "run only cases and trials whose names hold one of these `words`, separated by commas")
		targets = flags.String("targets", strings.Join([]string{ratchet, java540, java497, bareGnet, gnetAppends}, ","), "what to measure, in turn")
		rounds  = flags.Int("rounds", 3, "measurements of each target in each case")
		last    = flags.Duration("time", time.Second, "how long a round takes")
		warm    = flags.Duration("warm", 3*time.Second, "how long each target is warmed up before its first round")
		dir     = flags.String("dir", "", "folder for stores and logs, which are removed in the end; default: a temporary one")
		binary  = flags.String("ratchet", "", "a ratchet binary to measure; default: it is built")
		save    = flags.String("save", "", "file for the results, JSON; plots are drawn beside it")
		show    = flags.String("show", "", "run nothing, print the tables of a saved file and draw its plots")
		pprof   = flags.String("pprof", "", "address at which ours serves profiles while it is measured")
		apart   = flags.Bool("apart", false, "give the brokers one half of the processors and the generator the other")
		fill    = flags.Bool("fill", true, "have the page cache fill free memory before each round and trial, as on a machine that has run for a while")
		only    = flags.Bool("facts", false, "only the trials, no cases: starts, memory, growth")
		grow    = flags.Int64("grow", 4, "how many GiB of log the costs are followed to")
		list    = flags.Bool("list", false, "list the cases")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	all := workloads()
	if *list {
		for _, w := range all {
			fmt.Printf("%-18s %s\n", w.name, w.title)
		}
		for _, t := range trials() {
			fmt.Printf("%-18s %s\n", t.name, t.title)
		}
		return nil
	}
	if *show != "" {
		rep, err := load(*show)
		if err != nil {
			return err
		}
		rep.print(os.Stdout)
		return rep.draw(*show)
	}
	work, err := os.MkdirTemp(*dir, "benchmarks-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	s, err := newStand(ctx, work, *binary)
	if err != nil {
		return err
	}
	defer s.close()
	s.pprof = *pprof
	if *apart {
		if s.sides, err = takeSides(); err != nil {
			return err
		}
	}
	if err := s.names(ctx); err != nil {
		return err
	}
	r := &run{stand: s, targets: strings.Split(*targets, ","), rounds: *rounds, last: *last, warm: *warm, scale: fullScale(*grow<<30, *rounds)}
	if *fill {
		if r.filler, err = newFiller(work); err != nil {
			return err
		}
		defer r.filler.close()
	}
	rep := newReport()
	if *apart {
		rep.Machine += ", one half for the brokers, the other for the generator"
	}
	var failed []error
	for i := range all {
		if *only || !wanted(all[i].name, *cases) {
			continue
		}
		res, err := r.measure(ctx, &all[i])
		if err != nil {
			failed = append(failed, err)
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		rep.Results = append(rep.Results, res)
	}
	for _, t := range trials() {
		if !wanted(t.name, *cases) {
			continue
		}
		found, err := r.try(ctx, &t)
		if err != nil {
			failed = append(failed, err)
			fmt.Fprintln(os.Stderr, err)
		}
		rep.Facts = append(rep.Facts, found...)
	}
	rep.print(os.Stdout)
	if *save != "" {
		failed = append(failed, rep.save(*save))
		if !*only {
			failed = append(failed, rep.draw(*save))
		}
	}
	return errors.Join(failed...)
}

func wanted(name, words string) bool {
	for word := range strings.SplitSeq(words, ",") {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}
