package replica

import (
	"cmp"
	"runtime/debug"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// The versions of the protocol. Version 1 has no numbers in its handshake. Version 2 has relays and
// filters. Version 3 has the status of the archive, version 4 the settings and ids of the events,
// the historians, and the counts of a day. Version 5 has the message of a leader that hands
// leadership over. A source takes all, because the coordinator is upgraded before the gateways. A
// follower needs what version 2 has.
const (
	protocol               = 5
	archiveProtocol        = 3 // the first whose followers know wire.KindArchive
	eventsProtocol         = 4 // the first whose followers know the kinds of ofEvents, and wire.KindCounts
	closingProtocol        = 5 // the first whose followers know that a leader hands leadership over
	oldestProtocolAtSource = 1
	oldestProtocolBelow    = 2
)

// agree returns the version of the protocol for a stream that begins with hello: the newest that
// both sides speak. ours is the version of this program.
func agree(hello *pb.ReplicateHello, ours string) (uint32, error) {
	newest, oldest := max(hello.GetProtocol(), 1), max(hello.GetOldestProtocol(), 1)
	switch {
	case oldest > protocol:
		return 0, plimsoll.Errorf(plimsoll.CodeConflict,
			"the gateway runs plimsoll %s, which speaks versions %d to %d of the replication protocol; this process runs plimsoll %s, which speaks at most %d: upgrade this process to the gateway's version first",
			programVersion(hello.GetVersion()), oldest, newest, programVersion(ours), protocol)
	case newest < oldestProtocolAtSource:
		return 0, plimsoll.Errorf(plimsoll.CodeConflict,
			"the gateway runs plimsoll %s, which speaks version %d of the replication protocol; this process runs plimsoll %s, which needs at least %d: upgrade the gateway to this version",
			programVersion(hello.GetVersion()), newest, programVersion(ours), oldestProtocolAtSource)
	}
	return min(newest, protocol), nil
}

// accept returns an error unless this program can follow the sender of a welcome.
func accept(welcome *pb.ReplicateWelcome, ours string) error {
	theirs := max(welcome.GetProtocol(), 1)
	if oldestProtocolBelow <= theirs && theirs <= protocol {
		return nil
	}
	return plimsoll.Errorf(plimsoll.CodeConflict,
		"this gateway runs plimsoll %s, which speaks version %d of the replication protocol; the process that it follows runs plimsoll %s, which chose %d: upgrade that process to the gateway's version",
		programVersion(ours), protocol, programVersion(welcome.GetVersion()), theirs)
}

// programVersion returns a version as error texts name it.
func programVersion(version string) string { return cmp.Or(version, "(no version)") }

// builtVersion returns the version that the Go tool wrote into this program; empty if there is
// none.
func builtVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return info.Main.Version
}
