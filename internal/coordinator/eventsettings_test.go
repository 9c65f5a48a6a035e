package coordinator

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/store"
)

func setEvents(name, value string) *pb.Command {
	return &pb.Command{Kind: &pb.Command_SetEventSettings{
		SetEventSettings: &pb.SetEventSettingsRequest{Settings: map[string]string{name: value}},
	}}
}

// untrimmed is a store that never deletes events, as after a crash before it could.
type untrimmed struct{ store.Store }

func (untrimmed) TrimEvents(uint64) error { return nil }

// While the collection is off no event is made, and those of before can be read. Once it is on
// again events are missing, so another InstanceUUID begins. Gateways that follow and gateways that
// connect meanwhile have the same. YuniKorn records nothing any more then, until it is restarted.
func TestCollectionIsTurnedOffAndOnAgain(t *testing.T) {
	for name, off := range map[string][2]*pb.Command{
		"tracking": {setEvents("trackingEventsEnabled", "false"), setEvents("trackingEventsEnabled", "true")},
		"capacity": {setEvents("ringBufferCapacity", "0"), setEvents("ringBufferCapacity", "1000")},
	} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, crash %v", name, crash), func(t *testing.T) {
				turnOffAndOn(t, off[0], off[1], crash)
			})
		}
	}
}

func turnOffAndOn(t *testing.T, off, on *pb.Command, crash bool) {
	fs := vfs.NewMem()
	var st store.Store = openStore(t, fs, store.Limits{})
	if crash {
		st = untrimmed{st}
	}
	l := lead(t, Config{}, st)
	l.must(submit(job("before", 1)))
	l.must(off)
	before := l.Latest()
	_, kept := events(t, before)
	l.must(submit(job("dark", 1)))
	if now := l.Latest(); now.Events().Next() != before.Events().Next() || now.InstanceUUID() != before.InstanceUUID() {
		t.Errorf("the next id is %d, and was %d", now.Events().Next(), before.Events().Next())
	}
	if _, now := events(t, l.Latest()); !slices.Equal(now, kept) {
		t.Errorf("%d events are left of %d", len(now), len(kept))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dark := l.follow(ctx, "dark")
	l.must(on)
	if _, _, some := l.Latest().Events().Range(); some || l.Latest().InstanceUUID() == before.InstanceUUID() {
		t.Error("the events of before stand under the ids of after")
	}
	fresh := l.follow(ctx, "fresh")
	l.must(submit(job("after", 1)))
	after := l.Latest()
	low, all := events(t, after)
	if low != before.Events().Next() || len(all) < 5 {
		t.Errorf("%d events from %d on; they go on at %d", len(all), low, before.Events().Next())
	}
	for _, f := range []*replica.Follower{dark, fresh} {
		s, err := f.Barrier(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got, found := events(t, s); got != low || len(found) < len(all) || s.InstanceUUID() != after.InstanceUUID() {
			t.Errorf("another gateway has %d events from %d on under %s", len(found), got, s.InstanceUUID())
		}
	}
	cancel()
	l.stop()
	l = lead(t, Config{}, openStore(t, fs, store.Limits{}))
	defer l.stop()
	next, found := events(t, l.Latest())
	if next != low || len(found) < len(all) || !slices.Equal(found[:len(all)], all) ||
		l.Latest().InstanceUUID() != after.InstanceUUID() {
		t.Errorf("the next leader has %d events from %d on under %s", len(found), next, l.Latest().InstanceUUID())
	}
}

// The settings of a role's file hold from its first turn on, and a live change outlives a leader
// with the same file. Another value in the file is set.
func TestSettingsOfTheFileAndTheAPI(t *testing.T) {
	fs := vfs.NewMem()
	file := map[string]string{"event.ringBufferCapacity": "7", "trackingEventsEnabled": "false"}
	run := func(commands ...*pb.Command) (plimsoll.EventSettings, *replica.Snapshot) {
		l := lead(t, Config{State: state.Config{Events: file}}, openStore(t, fs, store.Limits{}))
		defer l.stop()
		l.settle()
		for _, cmd := range commands {
			l.must(cmd)
		}
		s, err := l.Barrier(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		settings, err := s.EventSettings()
		if err != nil {
			t.Fatal(err)
		}
		return settings, s
	}
	settings, s := run()
	if settings.RingBufferCapacity != 7 || settings.Collecting() || s.Events().Next() != 0 {
		t.Errorf("the first leader has %+v, and %d events", settings, s.Events().Next())
	}
	if settings, _ = run(setEvents("ringBufferCapacity", "70")); settings.RingBufferCapacity != 70 {
		t.Errorf("a change gives %+v", settings)
	}
	if settings, _ = run(); settings.RingBufferCapacity != 70 || settings.Collecting() {
		t.Errorf("the next leader has %+v", settings)
	}
	file = map[string]string{"service.event.ringBufferCapacity": "8"}
	if settings, _ = run(); settings.RingBufferCapacity != 8 || settings.Collecting() {
		t.Errorf("a leader with another file has %+v", settings)
	}
}

// A wrong setting is refused, changes nothing, and is repeated in the same way.
func TestAWrongSettingOfTheEventsIsRefused(t *testing.T) {
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), store.Limits{}))
	defer l.stop()
	cmd := setEvents("ringBufferCapacity", "-1")
	cmd.GetSetEventSettings().Settings["RESTResponseSize"] = "5"
	if _, err := l.Do(t.Context(), cmd); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("it was answered with %v", err)
	}
	if settings, err := l.Latest().EventSettings(); err != nil || settings.RESTResponseSize != 10_000 {
		t.Errorf("the settings are %+v, %v", settings, err)
	}
}
