//go:build !linux || poll_opt

package remoting

import (
	"errors"

	"github.com/panjf2000/gnet/v2"
)

// pollerOf finds nothing here: see interest_linux.go.
func pollerOf(gnet.EventLoop) (fd int, ok bool) { return -1, false }

func setInterest(int, int, bool, bool) error { return errors.ErrUnsupported }
