package main

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/gateway"
)

// The flags bound the streams of events of a gateway. An impossible number is refused with the
// flag's name.
func TestFlagsBoundTheStreamsOfEvents(t *testing.T) {
	for _, c := range []struct {
		flags     connectionFlags
		all, peer int
		field     string // of the error; empty: none
	}{
		{connectionFlags{}, 0, 0, ""}, // the defaults of the gateway
		{connectionFlags{MaxConnections: 9, MaxEventStreams: 1000}, 1000, 0, ""},
		{connectionFlags{MaxEventStreams: 10_000, MaxPeerEventStreams: 10_000}, 10_000, 10_000, ""},
		{connectionFlags{MaxPeerEventStreams: 100}, 0, 100, ""},
		{connectionFlags{MaxPeerEventStreams: 101}, 0, 0, "--max-peer-event-streams: is 101; give 1 to 100"},
		{connectionFlags{MaxEventStreams: 5, MaxPeerEventStreams: 6}, 0, 0, "--max-peer-event-streams"},
		{connectionFlags{MaxPeerEventStreams: -1}, 0, 0, "--max-peer-event-streams"},
		{connectionFlags{MaxEventStreams: -1}, 0, 0, "--max-event-streams: is -1; give 1 to 10000, or 0 for 100"},
		{connectionFlags{MaxEventStreams: 10_001}, 0, 0, "--max-event-streams"},
	} {
		var g gateway.Config
		err := c.flags.bound(&g)
		if c.field != "" {
			if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), c.field) {
				t.Errorf("%+v: %v", c.flags, err)
			}
			continue
		}
		if err != nil || g.MaxEventStreams != c.all || g.MaxPeerEventStreams != c.peer ||
			g.MaxConnections != c.flags.MaxConnections {
			t.Errorf("%+v: %d and %d, %v", c.flags, g.MaxEventStreams, g.MaxPeerEventStreams, err)
		}
	}
}

// The help and the page of limits tell the default of the gateway.
func TestTheDefaultOfEventStreamsIsTheSameInCodeHelpAndPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	field, _ := reflect.TypeFor[connectionFlags]().FieldByName("MaxEventStreams")
	if want := fmt.Sprintf("0: %d.", gateway.DefaultEventStreams); !strings.Contains(field.Tag.Get("help"), want) {
		t.Errorf("the help does not say %q", want)
	}
	if want := fmt.Sprintf("`--max-event-streams`; default %d", gateway.DefaultEventStreams); !strings.Contains(
		string(page), want,
	) {
		t.Errorf("limits.md does not say %q", want)
	}
}
