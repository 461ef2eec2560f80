package remoting

import (
	"fmt"
	"log/slog"
)

// gnetLog passes what gnet says on. Its messages are texts of its own, so they go under err.
type gnetLog struct{ log *slog.Logger }

func (g gnetLog) Debugf(format string, args ...any) {
	g.log.Debug("event loop", "err", fmt.Sprintf(format, args...))
}
func (g gnetLog) Infof(format string, args ...any) { g.Debugf(format, args...) }
func (g gnetLog) Warnf(format string, args ...any) {
	g.log.Warn("event loop", "err", fmt.Sprintf(format, args...))
}

func (g gnetLog) Errorf(format string, args ...any) {
	g.log.Error("event loop", "err", fmt.Sprintf(format, args...))
}

// Fatalf does not end the process: that is for main to decide.
func (g gnetLog) Fatalf(format string, args ...any) { g.Errorf(format, args...) }
