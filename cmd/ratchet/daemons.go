package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"golang.org/x/sync/errgroup"

	"github.com/ratchetmq/ratchet/broker"
	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/namesrv"
)

// logger writes text lines; it says what is wrong, and with verbose also what happens.
func logger(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// daemonFlags are what both daemons are told on the command line.
type daemonFlags struct {
	file  string // of settings; "": none
	text  []byte // what is in it
	print bool   // print all settings and stop
	pprof string // where profiles are served; "": nowhere
}

// parse reads the flags of a daemon, those that set has already among them, and the file of settings.
func (d *daemonFlags) parse(set *flag.FlagSet, args []string) (err error) {
	set.StringVar(&d.file, "c", "", "configuration `file` (.properties, RocketMQ's keys)")
	set.BoolVar(&d.print, "p", false, "print all settings and stop")
	set.StringVar(&d.pprof, "pprof", "", pprofUsage)
	if err := parseFlags(set, args); err != nil {
		return err
	}
	if d.file != "" {
		d.text, err = os.ReadFile(d.file)
	}
	return err
}

// runBroker runs a broker with RocketMQ's flags.
func runBroker(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("broker", flag.ContinueOnError)
	names := flags.String("n", "", "name servers, `host:port;host:port`; overrides namesrvAddr")
	var d daemonFlags
	if err := d.parse(flags, args); err != nil {
		return err
	}
	settings, unknown, err := config.LoadBroker(d.file, d.text, "ratchet-data/store", config.OSEnv())
	if err != nil {
		return err
	}
	if *names != "" {
		if err := settings.Namesrv.UnmarshalText([]byte(*names)); err != nil {
			return fmt.Errorf("-n: %w", err)
		}
	}
	if d.print {
		fmt.Print(config.Text(settings, unknown))
		return nil
	}
	stopProfiles, err := serveProfiles(ctx, d.pprof)
	if err != nil {
		return err
	}
	defer stopProfiles()
	b, err := broker.Start(ctx, broker.Config{
		Settings: settings, Unknown: unknown, File: d.file, Logger: logger(os.Stderr, true),
	})
	if err != nil {
		return err
	}
	fmt.Printf("broker %s is ready on %s\n", settings.Name, b.Addr())
	return b.Wait()
}

// runNamesrv runs a name server with RocketMQ's flags.
func runNamesrv(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("namesrv", flag.ContinueOnError)
	var d daemonFlags
	if err := d.parse(flags, args); err != nil {
		return err
	}
	settings, unknown, err := config.LoadNamesrv(d.file, d.text, "ratchet-data/namesrv", config.OSEnv())
	if err != nil {
		return err
	}
	if d.print {
		fmt.Print(config.Text(settings, unknown))
		return nil
	}
	stopProfiles, err := serveProfiles(ctx, d.pprof)
	if err != nil {
		return err
	}
	defer stopProfiles()
	log := logger(os.Stderr, true)
	for _, pair := range unknown {
		log.Warn("setting without effect", "key", pair.Key, "path", d.file)
	}
	server, err := namesrv.New(namesrv.Config{
		Settings: config.NewLive(settings, unknown, config.OSEnv()), Logger: log,
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Run(ctx) })
	group.Go(func() error {
		select {
		case <-server.Ready():
			fmt.Printf("name server is ready on %s\n", server.Addr())
		case <-ctx.Done():
		}
		return nil
	})
	return group.Wait()
}

func runVersion(context.Context, []string) error {
	version := "(built without version)"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version + " " + info.GoVersion
	}
	fmt.Println("ratchet", version)
	return nil
}
