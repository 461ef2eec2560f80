// Package ratchet_test holds the tests that are about the whole tree.
package ratchet_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/ratchetmq/ratchet/"

// allowed is every arrow between the project's packages that may be: importer to imported. Arrows go down the page.
var allowed = map[string][]string{
	"cmd/ratchet":           {"broker", "namesrv", "inspect", "remoting", "protocol", "message", "internal/config", "internal/vfs"},
	"ratchettest":           {"broker", "namesrv", "internal/config", "internal/freeport"},
	"broker":                {"processor", "ha", "delay", "store", "store/index", "remoting", "protocol", "message", "internal/config", "internal/state", "internal/vfs", "internal/offset"},
	"processor":             {"delay", "ha", "store", "store/index", "remoting", "protocol", "message", "internal/config", "internal/state", "internal/offset"},
	"namesrv":               {"remoting", "protocol", "internal/config", "internal/atomicfile", "internal/vfs"},
	"ha":                    {"delay", "store", "internal/config", "remoting", "protocol", "message", "internal/state", "internal/atomicfile", "internal/offset", "internal/vfs"},
	"ha/sim":                {}, // tests only
	"delay":                 {"store", "message", "internal/atomicfile", "internal/offset", "internal/vfs", "protocol"},
	"store":                 {"message", "internal/atomicfile", "internal/offset", "internal/vfs"},
	"store/index":           {"message", "internal/offset", "internal/vfs"},
	"remoting":              {"protocol"},
	"inspect":               {"message", "internal/vfs", "protocol"},
	"internal/state":        {"protocol", "message", "internal/atomicfile", "internal/offset", "internal/vfs"},
	"internal/config":       {"internal/atomicfile", "internal/vfs"},
	"internal/atomicfile":   {"internal/vfs"},
	"internal/vfs/vfstest":  {"internal/vfs"},
	"protocol":              {"message", "internal/offset"},
	"message":               {"internal/offset"},
	"protocol/headergen":    {},
	"internal/vfs":          {},
	"internal/offset":       {},
	"crash":                 {},
	"conformance":           {},
	"conformance/oracle":    {},
	"benchmarks":            {"protocol", "message", "conformance/oracle", "internal/freeport"},
	"internal/freeport":     {},
	"internal/vfs/powercut": {"internal/vfs"},
}

// TestImportArrows keeps the layers apart: a store that knows no network is tested without one.
func TestImportArrows(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	require.NoError(t, err)
	packages := 0
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; packages++ {
		var pkg struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		from := strings.TrimPrefix(pkg.ImportPath, module)
		if from+"/" == module { // the root holds only tests
			continue
		}
		targets, known := allowed[from]
		if !known {
			t.Errorf("package %s is not in the table of arrows: say what it may import", from)
			continue
		}
		for _, imported := range pkg.Imports {
			to, ours := strings.CutPrefix(imported, module)
			if ours && !contains(targets, to) {
				t.Errorf("%s may not import %s", from, to)
			}
		}
	}
	require.Greater(t, packages, 5)
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// onlyImport is where a library may be imported: one file, so that it can be exchanged there.
var onlyImport = map[string]string{
	`"github.com/bytedance/sonic`:         "protocol/json.go",
	`"github.com/valyala/bytebufferpool"`: "remoting/buffer.go",
	`"github.com/panjf2000/gnet/v2`:       "remoting/",
}

// bareGo matches a goroutine that nobody owns.
var bareGo = regexp.MustCompile(`^\s*go (func\b|[a-zA-Z_.]+\()`)

// TestSourceRules looks at every source file for what the house style rules out and no compiler notices.
func TestSourceRules(t *testing.T) {
	files := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != "." || d.Name() == "testdata" || path == "conformance/goclient" || d.Name() == "target") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_gen.go") {
			return nil
		}
		files++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines := strings.Split(string(text), "\n")
		test := strings.HasSuffix(path, "_test.go")
		if len(lines) > 601 && !test {
			t.Errorf("%s has %d lines: a concept inside it wants a file of its own", path, len(lines))
		}
		for i, line := range lines {
			if !test && bareGo.MatchString(line) && !strings.Contains(line, "// owned:") {
				t.Errorf("%s:%d: a goroutine without an owner: use a WaitGroup's Go, or say `// owned:` by whom and how it ends", path, i+1)
			}
			for lib, place := range onlyImport {
				bound := strings.HasPrefix(path, "benchmarks/") // what gnet costs alone is measured there
				if strings.HasPrefix(strings.TrimSpace(line), lib) && !strings.HasPrefix(path, place) && !test && !bound {
					t.Errorf("%s:%d: only %s may import %s", path, i+1, place, lib)
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, files, 30)
}
