package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Tags of a settings struct:
//
//	prop:"javaName,option…"  the key; options: ms, s, min, h (unit of a time.Duration), path (~ and ${…} are expanded),
//	                         live (takes effect at once when changed: every reader asks Live each time),
//	                         unused (read, checked and shown, but nothing acts on it; a test compares with the code),
//	                         protected (never changed from outside)
//	default:"text"           the value without a file
//	range:"low..high"        legal numbers, in the key's unit; either end may be missing
type field struct {
	key       string
	index     int
	def       string
	unit      time.Duration
	path      bool
	live      bool
	unused    bool
	protected bool
	low, high float64
}

var tables sync.Map // reflect.Type → *table

type table struct {
	fields []field
	byKey  map[string]*field
}

func tableOf(t reflect.Type) *table {
	if known, ok := tables.Load(t); ok {
		return known.(*table)
	}
	tab := &table{byKey: map[string]*field{}}
	for i := range t.NumField() {
		if tag, ok := t.Field(i).Tag.Lookup("prop"); ok {
			tab.fields = append(tab.fields, readTag(t.Field(i), tag, i))
		}
	}
	for i := range tab.fields {
		tab.byKey[tab.fields[i].key] = &tab.fields[i]
	}
	known, _ := tables.LoadOrStore(t, tab)
	return known.(*table)
}

func readTag(sf reflect.StructField, tag string, index int) field {
	key, options, _ := strings.Cut(tag, ",")
	f := field{key: key, index: index, def: sf.Tag.Get("default"), low: math.Inf(-1), high: math.Inf(1)}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "ms":
			f.unit = time.Millisecond
		case "s":
			f.unit = time.Second
		case "min":
			f.unit = time.Minute
		case "h":
			f.unit = time.Hour
		case "path":
			f.path = true
		case "live":
			f.live = true
		case "unused":
			f.unused = true
		case "protected":
			f.protected = true
		case "":
		default:
			// impossible: a test walks over the tags of every struct.
			panic("config: unknown option " + option + " in the tag of " + sf.Name)
		}
	}
	if r, ok := sf.Tag.Lookup("range"); ok {
		low, high, _ := strings.Cut(r, "..")
		if v, err := strconv.ParseFloat(low, 64); err == nil {
			f.low = v
		}
		if v, err := strconv.ParseFloat(high, 64); err == nil {
			f.high = v
		}
	}
	return f
}

// Env is what a path in a file may refer to.
type Env struct {
	Home   string                           // for ~ and ${user.home}
	Lookup func(name string) (string, bool) // for any other ${name}; nil: nothing is known
}

// OSEnv is the environment of this process.
func OSEnv() Env {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "."
	}
	return Env{Home: home, Lookup: os.LookupEnv}
}

// expand resolves a leading ~ and every ${name}. A name that is not known is an error: a folder called "${user.hom}"
// is never what was meant.
func (e Env) expand(path string) (string, error) {
	if path == "~" || strings.HasPrefix(path, "~/") {
		path = e.Home + path[1:]
	}
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(path, "${")
		b.WriteString(before)
		if !found {
			break
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", fmt.Errorf("%q has a ${ without }", path)
		}
		value, known := e.Home, name == "user.home"
		if !known && e.Lookup != nil {
			value, known = e.Lookup(name)
		}
		if !known {
			return "", fmt.Errorf("${%s} is not known", name)
		}
		b.WriteString(value)
		path = after
	}
	if b.Len() == 0 {
		return "", nil
	}
	return filepath.Clean(b.String()), nil
}

// Defaults fills *cfg, a struct with prop tags, with its defaults.
func Defaults[T any](cfg *T) {
	v := reflect.ValueOf(cfg).Elem()
	for i := range tableOf(v.Type()).fields {
		f := &tableOf(v.Type()).fields[i]
		if f.def == "" {
			v.Field(f.index).SetZero()
			continue
		}
		if err := f.set(v, f.def, Env{}); err != nil {
			// impossible: a test sets the defaults of every struct.
			panic(fmt.Sprintf("config: default of %s: %v", f.key, err))
		}
	}
}

// Load reads a .properties text into *cfg, over what is there: call Defaults first. It returns the pairs that have no
// effect: their keys are unknown, or nothing acts on them and they change a default. All values that can't be read are
// reported, joined, each as `file:line: key "x": "abc" is not a number`; *cfg is then half filled and not to be used.
func Load[T any](cfg *T, file string, text []byte, env Env) (idle []Pair, err error) {
	pairs, err := ParseProperties(file, text)
	if err != nil {
		return nil, err
	}
	v := reflect.ValueOf(cfg).Elem()
	tab := tableOf(v.Type())
	var errs []error
	for _, p := range pairs.Effective() {
		f, ok := tab.byKey[p.Key]
		if !ok {
			idle = append(idle, p)
			continue
		}
		before := f.text(v)
		if err := f.set(v, p.Value, env); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: key %q: %w", file, p.Line, p.Key, err))
		} else if f.unused && f.text(v) != before {
			idle = append(idle, p)
		}
	}
	return idle, errors.Join(errs...)
}

// Get returns the present value of a key as text, as it would stand in a file.
func Get[T any](cfg *T, key string) (string, bool) {
	v := reflect.ValueOf(cfg).Elem()
	f, ok := tableOf(v.Type()).byKey[key]
	if !ok {
		return "", false
	}
	return f.text(v), true
}

// Text lists all settings as `key=value` lines in the struct's order, then those of the pairs whose keys are unknown. It is what -p prints
// and what GET_BROKER_CONFIG answers; as in Java nothing is escaped but line ends, which would forge further lines.
func Text[T any](cfg *T, idle []Pair) string {
	v := reflect.ValueOf(cfg).Elem()
	tab := tableOf(v.Type())
	var b strings.Builder
	for _, f := range tab.fields {
		writeLine(&b, f.key, f.text(v))
	}
	for _, p := range idle {
		if tab.byKey[p.Key] == nil {
			writeLine(&b, p.Key, p.Value)
		}
	}
	return b.String()
}

var lineEnds = strings.NewReplacer("\n", `\n`, "\r", `\r`)

func writeLine(b *strings.Builder, key, value string) {
	b.WriteString(lineEnds.Replace(key))
	b.WriteByte('=')
	b.WriteString(lineEnds.Replace(value))
	b.WriteByte('\n')
}

// set reads text into the field of the struct v. White space around the text does not count; Java refuses numbers with
// a blank behind them and then silently goes on with the default.
func (f *field) set(v reflect.Value, text string, env Env) error {
	target := v.Field(f.index)
	text = strings.TrimSpace(text)
	if u, ok := target.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	if f.unit != 0 {
		return f.setDuration(target, text)
	}
	switch target.Kind() {
	case reflect.String:
		if f.path {
			var paths []string
			for part := range strings.SplitSeq(text, ",") { // storePathCommitLog may be several
				expanded, err := env.expand(strings.TrimSpace(part))
				if err != nil {
					return err
				}
				if expanded != "" { // which would be the folder that the broker happens to be started in
					paths = append(paths, expanded)
				}
			}
			text = strings.Join(paths, ",")
		}
		target.SetString(text)
	case reflect.Bool:
		switch strings.ToLower(text) {
		case "true":
			target.SetBool(true)
		case "false":
			target.SetBool(false)
		default:
			return fmt.Errorf("%q is neither true nor false", text)
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, err := f.number(text, target.Type().Bits())
		if err != nil {
			return err
		}
		target.SetInt(n)
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(n) {
			return fmt.Errorf("%q is not a number", text)
		}
		if err := f.inRange(n, text); err != nil {
			return err
		}
		target.SetFloat(n)
	default:
		// impossible: a test sets the defaults of every struct.
		panic("config: no way to set " + f.key)
	}
	return nil
}

func (f *field) setDuration(target reflect.Value, text string) error {
	n, err := f.number(text, 64)
	if err != nil {
		return err
	}
	if most := math.MaxInt64 / int64(f.unit); n > most || n < -most {
		return fmt.Errorf("%s is too large", text)
	}
	target.SetInt(n * int64(f.unit))
	return nil
}

func (f *field) number(text string, bits int) (int64, error) {
	n, err := strconv.ParseInt(text, 10, bits)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s does not fit in %d bits", text, bits)
	case err != nil:
		return 0, fmt.Errorf("%q is not a number", text)
	}
	return n, f.inRange(float64(n), text)
}

func (f *field) inRange(n float64, text string) error {
	switch {
	case n < f.low:
		return fmt.Errorf("%s is below the least value, %s", text, strconv.FormatFloat(f.low, 'f', -1, 64))
	case n > f.high:
		return fmt.Errorf("%s is above the greatest value, %s", text, strconv.FormatFloat(f.high, 'f', -1, 64))
	}
	return nil
}

func (f *field) text(v reflect.Value) string {
	value := v.Field(f.index)
	if m, ok := value.Interface().(encoding.TextMarshaler); ok {
		text, err := m.MarshalText()
		if err != nil {
			return ""
		}
		return string(text)
	}
	if f.unit != 0 {
		return strconv.FormatInt(value.Int()/int64(f.unit), 10)
	}
	switch value.Kind() {
	case reflect.Bool:
		return strconv.FormatBool(value.Bool())
	case reflect.Float64:
		return strconv.FormatFloat(value.Float(), 'f', -1, 64)
	case reflect.String:
		return value.String()
	default:
		return strconv.FormatInt(value.Int(), 10)
	}
}
