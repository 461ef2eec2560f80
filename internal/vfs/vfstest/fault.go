package vfstest

// Kind is a kind of operation.
type Kind uint8

// The kinds of operation that a fault can hit.
const (
	OpOpen Kind = iota
	OpCreate
	OpRead
	OpWrite
	OpSync
	OpTruncate
	OpPreallocate
	OpReadDir
	OpStat
	OpMkdir
	OpRename
	OpRemove
	OpSyncDir
)

var kindNames = [...]string{
	"open", "create", "read", "write", "sync", "truncate", "preallocate", "readdir", "stat", "mkdir", "rename",
	"remove", "syncdir",
}

func (k Kind) String() string { return kindNames[k] }

// Changes says whether operations of this kind change the disk.
func (k Kind) Changes() bool {
	switch k {
	case OpOpen, OpRead, OpReadDir, OpStat:
		return false
	default:
		return true
	}
}

// Op is one operation before it is done.
type Op struct {
	Kind Kind
	Name string
	Off  int64 // of reads and writes
	Len  int
}

// Fault is how an operation is to fail.
type Fault struct {
	Err   error
	Short int // of a write: so many bytes are written nevertheless
}

// SetFault sets the hook that is asked before every operation; nil from it lets the operation pass. It runs under the
// model's lock and must not use the model. A nil hook ends all faults.
func (m *Mem) SetFault(hook func(Op) *Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = hook
}

// FailNth is a hook that lets the n-th operation for which match is true, counted from 1, and all later ones of them
// fail with err. A nil match takes all that change the disk.
func FailNth(n int, match func(Op) bool, err error) func(Op) *Fault {
	if match == nil {
		match = func(op Op) bool { return op.Kind.Changes() }
	}
	return func(op Op) *Fault {
		if !match(op) {
			return nil
		}
		if n--; n > 0 {
			return nil
		}
		return &Fault{Err: err}
	}
}

// Count is how many operations of a kind were done or tried.
func (m *Mem) Count(kind Kind) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ops[kind]
}
