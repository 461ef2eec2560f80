package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/ratchetmq/ratchet/broker"
	"github.com/ratchetmq/ratchet/internal/config"
	"github.com/ratchetmq/ratchet/namesrv"
)

// settings collects -set key=value flags: broker settings, as lines of a .properties file.
type settings []string

func (s *settings) String() string { return strings.Join(*s, " ") }

func (s *settings) Set(pair string) error {
	if !strings.Contains(pair, "=") {
		return fmt.Errorf("%q is not key=value", pair)
	}
	*s = append(*s, pair)
	return nil
}

// runDev runs a name server and a broker in one process.
func runDev(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("dev", flag.ContinueOnError)
	data := flags.String("data", "ratchet-data", "folder for all data")
	nameAddr := flags.String("namesrv", "127.0.0.1:9876", "where the name server listens")
	brokerAddr := flags.String("broker", "127.0.0.1:10911", "where the broker listens")
	var extra settings
	flags.Var(&extra, "set", "a broker setting, key=value; may be given several times")
	verbose := flags.Bool("v", false, "log what happens, not only what is wrong")
	profiles := flags.String("pprof", "", pprofUsage)
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	stopProfiles, err := serveProfiles(ctx, *profiles)
	if err != nil {
		return err
	}
	defer stopProfiles()
	log := logger(os.Stderr, *verbose)
	brokerConfig, err := devBroker(*data, *nameAddr, *brokerAddr, extra)
	if err != nil {
		return err
	}
	brokerConfig.Logger = log
	nameConfig, err := devNamesrv(*data, *nameAddr)
	if err != nil {
		return err
	}
	nameConfig.Logger = log

	// The name server outlives the broker, so that the broker can take its leave.
	nameCtx, stopName := context.WithCancel(context.WithoutCancel(ctx))
	defer stopName()
	group, groupCtx := errgroup.WithContext(ctx)
	server, err := namesrv.New(nameConfig)
	if err != nil {
		return fmt.Errorf("name server: %w", err)
	}
	group.Go(func() error { return server.Run(nameCtx) })
	group.Go(func() error {
		defer stopName()
		select {
		case <-server.Ready():
		case <-groupCtx.Done():
			return nil
		}
		b, err := broker.Start(groupCtx, brokerConfig)
		if err != nil {
			return err
		}
		greet(os.Stdout, *nameAddr, b.Addr(), *data)
		return b.Wait()
	})
	return group.Wait()
}

func greet(w io.Writer, nameAddr, brokerAddr, data string) {
	fmt.Fprintf(w, `Ratchet is ready.

  name server  %s   <- give this to your clients
  broker       %s
  data         %s

Try it:  ratchet demo -n %s
Stop it: Ctrl-C
`, nameAddr, brokerAddr, data, nameAddr)
}

func devBroker(data, nameAddr, brokerAddr string, extra settings) (broker.Config, error) {
	host, port, err := net.SplitHostPort(brokerAddr)
	if err != nil {
		return broker.Config{}, fmt.Errorf("-broker: %w", err)
	}
	advertised := host
	if addr, err := netip.ParseAddr(host); err == nil && addr.IsUnspecified() {
		advertised = "" // the broker finds one that clients can use
	}
	root := filepath.Join(data, "store")
	lines := []string{
		"brokerName=ratchet-dev",
		"bindAddress=" + host, "brokerIP1=" + advertised, "listenPort=" + port,
		"namesrvAddr=" + nameAddr,
		// A newcomer's disk is rarely empty; the folder grows by what is sent, as files are sparse where they can be.
		"mappedFileSizeCommitLog=" + strconv.Itoa(64<<20),
	}
	text := strings.Join(append(lines, extra...), "\n")
	settings, unknown, err := config.LoadBroker("-set", []byte(text), root, config.OSEnv())
	return broker.Config{Settings: settings, Unknown: unknown}, err
}

func devNamesrv(data, addr string) (namesrv.Config, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return namesrv.Config{}, fmt.Errorf("-namesrv: %w", err)
	}
	text := "bindAddress=" + host + "\nlistenPort=" + port
	settings, unknown, err := config.LoadNamesrv("-namesrv", []byte(text), filepath.Join(data, "namesrv"), config.OSEnv())
	if err != nil {
		return namesrv.Config{}, err
	}
	return namesrv.Config{Settings: config.NewLive(settings, unknown, config.OSEnv())}, nil
}

// parseFlags reads the flags of a command that takes nothing else.
func parseFlags(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return errors.New("unexpected argument " + strconv.Quote(flags.Arg(0)))
	}
	return nil
}
