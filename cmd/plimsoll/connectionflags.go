package main

import (
	"cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/gateway"
)

// connectionFlags belong to every role that serves users.
type connectionFlags struct {
	MaxConnections      int `help:"Most connections of users; 0: a quarter of the open files that the process may have, at most 8192." default:"0" placeholder:"N"`
	MaxEventStreams     int `help:"Most streams of events under /ws/v1, 1 to 10000; 0: 100. Each takes a connection." default:"0" placeholder:"N"`
	MaxPeerEventStreams int `help:"Most streams of events from one IP address of another machine, at most --max-event-streams. 0: 15, or --max-event-streams if that is less." default:"0" placeholder:"N"`
}

// mostEventStreams is the most streams of events that a gateway can be given. Half of the places
// for watches stay free.
const mostEventStreams = 10_000

// bound sets the bounds in the configuration of a gateway.
func (f *connectionFlags) bound(cfg *gateway.Config) error {
	all := cmp.Or(f.MaxEventStreams, gateway.DefaultEventStreams)
	switch {
	case all < 0 || all > mostEventStreams:
		return plimsoll.Invalid("--max-event-streams", "is %d; give 1 to %d, or 0 for %d",
			all, mostEventStreams, gateway.DefaultEventStreams)
	case f.MaxPeerEventStreams < 0 || f.MaxPeerEventStreams > all:
		return plimsoll.Invalid("--max-peer-event-streams",
			"is %d; give 1 to %d, which is --max-event-streams, or 0 for the default", f.MaxPeerEventStreams, all)
	}
	cfg.MaxConnections = f.MaxConnections
	cfg.MaxEventStreams, cfg.MaxPeerEventStreams = f.MaxEventStreams, f.MaxPeerEventStreams
	return nil
}
