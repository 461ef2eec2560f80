package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
)

// draw writes one plot of bars for each measure beside the saved results: path.json gets path-cpu.svg and so on.
func (r *report) draw(path string) error {
	stem := strings.TrimSuffix(path, filepath.Ext(path))
	for _, p := range []struct {
		name, title string
		of          func(*round) float64
	}{
		{"cpu", "Broker CPU per million messages, seconds (median, smallest to largest); less is better", (*round).perMillion},
		{"throughput", "Messages a second (median, smallest to largest); more is better", (*round).rate},
		{"p99", "99th percentile of the latency, µs (median, smallest to largest); less is better", func(o *round) float64 { return o.P99 }},
	} {
		if err := os.WriteFile(stem+"-"+p.name+".svg", []byte(r.bars(p.title, p.of)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

var colours = map[string]string{
	ratchet: "#0b6e4f", java540: "#c1440e", java497: "#e08e45", bareGnet: "#b8c4cc", gnetAppends: "#7d8f9b",
}

// bars draws a group of bars for each case. Each case has a scale of its own, for they differ by factors of a hundred.
func (r *report) bars(title string, of func(*round) float64) string {
	const (
		width, left, right = 900, 300, 110
		bar, gap           = 12, 14
		scale              = width - left - right
	)
	var b strings.Builder
	y := 52
	for _, res := range r.Results {
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-10, y+10+bar*(len(res.Series)-1)/2, html.EscapeString(res.Title))
		top := 0.0
		for _, s := range res.Series {
			top = max(top, s.spread(of).high)
		}
		for _, s := range res.Series {
			if v := s.spread(of); top > 0 {
				at := func(x float64) float64 { return left + x/top*scale }
				fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, left, y, at(v.median)-left, bar-2, colours[s.Target])
				fmt.Fprintf(&b, `<path d="M%.1f %dH%.1f" stroke="#222"/>`, at(v.low), y+bar/2-1, at(v.high))
				fmt.Fprintf(&b, `<text x="%.1f" y="%d" class="v">%s</text>`+"\n", at(v.high)+5, y+bar-3, digits(v.median))
			}
			y += bar
		}
		y += gap
	}
	var head strings.Builder
	fmt.Fprintf(&head, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, y+8)
	fmt.Fprintf(&head, "<style>.v{font-size:9px}</style><rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n")
	fmt.Fprintf(&head, `<text x="10" y="18" font-size="14">%s</text>`+"\n", html.EscapeString(title))
	x := 10
	for _, name := range []string{ratchet, java540, java497, bareGnet, gnetAppends} {
		fmt.Fprintf(&head, `<rect x="%d" y="28" width="10" height="10" fill="%s"/><text x="%d" y="37">%s</text>`+"\n", x, colours[name], x+14, name)
		x += 110
	}
	return head.String() + b.String() + "</svg>\n"
}

// digits is a number in three digits or more.
func digits(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// grouped is a count with its thousands apart.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}
