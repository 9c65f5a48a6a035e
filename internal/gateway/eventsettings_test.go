package gateway

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Without a record the settings are the defaults. A change goes to the leader, and its answer shows
// the settings behind it.
func TestSettingsOfTheEvents(t *testing.T) {
	f := cluster()
	s := serve(t, Config{}, f)
	usual := must(t, s.events.GetEventSettings, &pb.GetEventSettingsRequest{})
	if got := usual.GetSettings(); got.GetRingBufferCapacity() != 100_000 || !got.GetTrackingEventsEnabled() {
		t.Errorf("without a record the settings are %v", got)
	}
	settings := plimsoll.DefaultEventSettings()
	settings.RingBufferCapacity = 7
	f.put(wire.Mutation{Kind: wire.KindEventSettings, Value: wire.AppendEventSettings(nil, &settings)})
	changed := must(t, s.events.SetEventSettings, &pb.SetEventSettingsRequest{
		Settings: map[string]string{"event.ringBufferCapacity": "7"},
	})
	if got := changed.GetSettings().GetRingBufferCapacity(); got != 7 {
		t.Errorf("the answer to the change has %d", got)
	}
	if sent := f.sent(); len(sent) != 1 || sent[0].GetSetEventSettings().GetSettings()["event.ringBufferCapacity"] != "7" {
		t.Errorf("the leader was sent %v", sent)
	}
	for want, values := range map[string]map[string]string{
		"settings: is empty":   nil,
		`"x" is no setting of`: {"x": "1"},
		`service.event.ringBufferCapacity: "-1" is not a whole number`: {"ringBufferCapacity": "-1"},
	} {
		_, err := call(s.events.SetEventSettings, &pb.SetEventSettingsRequest{Settings: values})
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", values, err, want)
		}
	}
	if sent := f.sent(); len(sent) != 0 {
		t.Errorf("the leader was sent %v", sent)
	}
}
