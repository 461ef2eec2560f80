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

// readConfig reads a .properties file; no name means no settings.
func readConfig(name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	return os.ReadFile(name)
}

// runBroker runs a broker with RocketMQ's flags.
func runBroker(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("broker", flag.ContinueOnError)
	file := flags.String("c", "", "configuration `file` (.properties, RocketMQ's keys)")
	names := flags.String("n", "", "name servers, `host:port;host:port`; overrides namesrvAddr")
	printAll := flags.Bool("p", false, "print all settings and stop")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	text, err := readConfig(*file)
	if err != nil {
		return err
	}
	settings, unknown, err := config.LoadBroker(*file, text, "ratchet-data/store", config.OSEnv())
	if err != nil {
		return err
	}
	if *names != "" {
		if err := settings.Namesrv.UnmarshalText([]byte(*names)); err != nil {
			return fmt.Errorf("-n: %w", err)
		}
	}
	if *printAll {
		fmt.Print(config.Text(settings, unknown))
		return nil
	}
	b, err := broker.Start(ctx, broker.Config{
		Settings: settings, Unknown: unknown, File: *file, Logger: logger(os.Stderr, true),
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
	file := flags.String("c", "", "configuration `file` (.properties, RocketMQ's keys)")
	printAll := flags.Bool("p", false, "print all settings and stop")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	text, err := readConfig(*file)
	if err != nil {
		return err
	}
	settings, unknown, err := config.LoadNamesrv(*file, text, "ratchet-data/namesrv", config.OSEnv())
	if err != nil {
		return err
	}
	if *printAll {
		fmt.Print(config.Text(settings, unknown))
		return nil
	}
	log := logger(os.Stderr, true)
	for _, pair := range unknown {
		log.Warn("setting without effect", "key", pair.Key, "path", *file)
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
