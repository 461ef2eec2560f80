package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

const pprofUsage = "serve Go's profiles at this `address`, for go tool pprof http://ADDRESS/debug/pprof/profile"

// serveProfiles serves Go's profiles at addr until stop is called; "" is nowhere. Whoever reaches the address can see
// what is in memory, so that it should be one of this machine's own.
func serveProfiles(ctx context.Context, addr string) (stop func(), err error) {
	if addr == "" {
		return func() {}, nil
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("-pprof: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() { // owned: by who calls stop, which waits for it
		defer close(ended)
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			fmt.Println("profiles are not served any more:", err)
		}
	}()
	return func() {
		_ = server.Close()
		<-ended
	}, nil
}
