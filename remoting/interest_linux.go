//go:build linux && !poll_opt

package remoting

import (
	"reflect"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// pollerOf finds the epoll instance behind an event loop, to change which events of a socket it waits for. gnet 2.9.7
// has no way to stop reading a connection: it reads what comes and keeps what the handler leaves, without a bound. To
// let TCP push back on a sender, its socket must leave the set of those waited on for reading.
//
// The field is read by reflection, which needs no unsafe code and notices when gnet changes: ok is false then, and
// connections whose input piles up are closed instead (see serverLink.pause). A test fails too.
func pollerOf(loop gnet.EventLoop) (fd int, ok bool) {
	defer func() {
		if recover() != nil {
			fd, ok = -1, false
		}
	}()
	v := reflect.ValueOf(loop).Elem().FieldByName("poller").Elem().FieldByName("fd")
	return int(v.Int()), true
}

// setInterest says which events of a socket its event loop is to see. It must run on that loop. gnet itself sets both
// when it could not write all, and read when it then could: whoever wants no reading must repeat it after a write.
func setInterest(poller, socket int, read, write bool) error {
	ev := unix.EpollEvent{Fd: int32(socket)}
	if read {
		ev.Events |= unix.EPOLLIN | unix.EPOLLPRI
	}
	if write {
		ev.Events |= unix.EPOLLOUT
	}
	return unix.EpollCtl(poller, unix.EPOLL_CTL_MOD, socket, &ev)
}
