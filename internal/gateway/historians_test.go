package gateway

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// A gateway lists the registered historians beside the events that it has. Reports and removals go
// to the leader, unless they cannot be used.
func TestHistorians(t *testing.T) {
	f := cluster()
	s := serve(t, Config{}, f)
	all := must(t, s.events.ListHistorians, &pb.ListHistoriansRequest{}).GetRegistered()
	if len(all.GetHistorians()) > 0 {
		t.Errorf("without a record, registered are %v", all)
	}
	h := plimsoll.Historian{Name: "h", InstanceUUID: "i", Next: 7, Heard: 8}
	f.put(wire.Mutation{Kind: wire.KindHistorian, Key: "h", Value: wire.AppendHistorian(nil, &h)})
	f.emit(plimsoll.Event{Object: "a"}, plimsoll.Event{Object: "b"})
	all = must(t, s.events.ListHistorians, &pb.ListHistoriansRequest{}).GetRegistered()
	if len(all.GetHistorians()) != 1 || wire.HistorianFromProto(all.GetHistorians()[0]) != h ||
		all.GetNext() != f.tables.Snapshot().Events().Next() || all.GetLowestId() >= all.GetNext() ||
		all.GetInstanceUuid() != f.tables.Snapshot().InstanceUUID() {
		t.Errorf("registered are %v", all)
	}
	must(t, s.events.ReportHistorian, &pb.ReportHistorianRequest{Name: "h", InstanceUuid: "i", Next: 9})
	must(t, s.events.RemoveHistorian, &pb.RemoveHistorianRequest{Name: "h"})
	sent := f.sent()
	if len(sent) != 2 || sent[0].GetReportHistorian().GetNext() != 9 || sent[1].GetRemoveHistorian().GetName() != "h" {
		t.Errorf("the leader was sent %v", sent)
	}
	for want, report := range map[string]*pb.ReportHistorianRequest{
		"name: is empty":      {},
		"not a possible id":   {Name: "a/b"},
		"instance_uuid: is 6": {Name: "h", InstanceUuid: strings.Repeat("x", 65)},
	} {
		_, err := call(s.events.ReportHistorian, report)
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", report, err, want)
		}
	}
	_, err := call(s.events.RemoveHistorian, &pb.RemoveHistorianRequest{Name: "a/b"})
	if plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("a wrong name gives %v", err)
	}
	if sent := f.sent(); len(sent) > 0 {
		t.Errorf("the leader was sent %v", sent)
	}
}

// Only the users' token registers and removes historians: what they hold back takes memory of every
// gateway. An agent, which may be on a machine that runs anybody's tasks, cannot.
func TestOnlyUsersRegisterHistorians(t *testing.T) {
	grants := Grants(token.New(token.User), token.New(token.Agent))
	for _, path := range []string{
		plimsollv1connect.EventServiceReportHistorianProcedure, plimsollv1connect.EventServiceRemoveHistorianProcedure,
		plimsollv1connect.EventServiceListHistoriansProcedure,
	} {
		for _, g := range grants {
			if may := g.Paths(path); may != (g.Caller == transport.CallerUser) {
				t.Errorf("%v may call %s: %v", g.Caller, path, may)
			}
		}
	}
}
