package inspect

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Report is the result of Check.
type Report struct {
	Findings int            // how many things are wrong
	Kinds    map[string]int // how many of each kind
	Notes    map[string]int // what is odd but no damage

	w     io.Writer
	root  string
	limit int
	err   error // of writing
}

// Healthy says whether nothing is wrong.
func (r *Report) Healthy() bool { return r.Findings == 0 }

func newReport(w io.Writer, root string, limit int) *Report {
	return &Report{Kinds: map[string]int{}, Notes: map[string]int{}, w: w, root: root, limit: limit}
}

func (r *Report) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(r.w, format, args...); err != nil && r.err == nil {
		r.err = err
	}
}

// relative is a path below the store's folder, as it is shown.
func (r *Report) relative(path string) string {
	if rel, err := filepath.Rel(r.root, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}

// add tells one finding: what kind, where, what.
func (r *Report) add(kind, file string, at int64, format string, args ...any) {
	r.Findings++
	r.Kinds[kind]++
	if r.Kinds[kind] <= r.limit {
		r.printf("%-16s %s:%d  %s\n", kind, r.relative(file), at, fmt.Sprintf(format, args...))
	}
}

// note counts what is odd but has a good reason.
func (r *Report) note(kind string) { r.Notes[kind]++ }

// end writes the counts.
func (r *Report) end() {
	for _, kind := range slices.Sorted(maps.Keys(r.Kinds)) {
		more := ""
		if r.Kinds[kind] > r.limit {
			more = fmt.Sprintf(", %d not shown", r.Kinds[kind]-r.limit)
		}
		r.printf("count %-16s %d%s\n", kind, r.Kinds[kind], more)
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Notes)) {
		r.printf("note  %-16s %d\n", kind, r.Notes[kind])
	}
	if r.Healthy() {
		r.printf("healthy\n")
	} else {
		r.printf("damaged: %d findings\n", r.Findings)
	}
}
