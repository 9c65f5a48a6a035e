package replica

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// A refusal names both versions and which side to upgrade.
func TestHandshakeOfVersions(t *testing.T) {
	for _, test := range []struct {
		name  string
		hello *pb.ReplicateHello
		want  uint32
		error string
	}{
		{"the same", &pb.ReplicateHello{Protocol: protocol, OldestProtocol: 2, Version: "v2"}, protocol, ""},
		{"the version before the archive", &pb.ReplicateHello{Protocol: 2, OldestProtocol: 2}, 2, ""},
		{"a gateway without numbers", &pb.ReplicateHello{}, 1, ""},
		{
			"a newer gateway that speaks ours too",
			&pb.ReplicateHello{Protocol: 9, OldestProtocol: 2, Version: "v9"}, protocol, "",
		},
		{
			"a newer gateway that does not", &pb.ReplicateHello{Protocol: 9, OldestProtocol: 8, Version: "v9"}, 0,
			"runs plimsoll v9, which speaks versions 8 to 9 of the replication protocol; this process runs plimsoll v2, " +
				"which speaks at most 5: upgrade this process to the gateway's version first",
		},
	} {
		got, err := agree(test.hello, "v2")
		refused := plimsoll.CodeOf(err) == plimsoll.CodeConflict && strings.Contains(err.Error(), test.error)
		if got != test.want || test.error == "" && err != nil || test.error != "" && !refused {
			t.Errorf("%s: %d, %v", test.name, got, err)
		}
	}
	if err := accept(&pb.ReplicateWelcome{Protocol: protocol}, "v2"); err != nil {
		t.Errorf("a welcome of the same version: %v", err)
	}
	err := accept(&pb.ReplicateWelcome{}, "v2")
	const want = "this gateway runs plimsoll v2, which speaks version 5 of the replication protocol; " +
		"the process that it follows runs plimsoll (no version), which chose 1: upgrade that process to the gateway's version"
	if plimsoll.CodeOf(err) != plimsoll.CodeConflict || !strings.Contains(err.Error(), want) {
		t.Errorf("a welcome of an older version: %v", err)
	}
}

// An older gateway gets all kinds of record that it knows, and events; one that follows with a
// filter keeps its filter.
func TestAnOlderGatewayGetsTheKindsOfRecordThatItKnows(t *testing.T) {
	var all *filter
	if all.known(protocol) != nil {
		t.Error("a gateway of this version gets a filter that it has not asked for")
	}
	for version := range uint32(eventsProtocol) {
		old := all.known(version)
		if old.has(wire.KindArchive) != (version >= archiveProtocol) || old.has(wire.KindEventSettings) ||
			old.has(wire.KindEventIDs) || old.has(wire.KindHistorian) || old.has(wire.KindCounts) || !old.hasEvents() ||
			!old.has(wire.KindJobSpec) || !old.has(wire.KindPolicy) {
			t.Errorf("version %d: %+v", version, old)
		}
		tasks := &filter{kinds: [wire.NumKinds]bool{wire.KindTask: true}, node: "n1"}
		if got := tasks.known(version); *got != *tasks {
			t.Errorf("version %d: %+v became %+v", version, tasks, got)
		}
	}
}
