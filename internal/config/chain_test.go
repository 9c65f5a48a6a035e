package config_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/placement"
)

const placementFile = `
define:
  usable: [pipe, setup, hard-filter-running, invalid-servers, reserved]
  room: [pipe, load-instances, calculate-unreserved, min-memory, min-cpu, min-custom]
chain:
  - pipe
  - usable
  - traits
  - room
  - [or, [pipe, reservoir, sick-servers], identity]
  - score-unreserved-memory
  - score-random
evictedFor: 7m
batch: 20
all: true
maxInstances: 8
capness: true
headnodes: true
largeServers: false
ownerSpread: false
sickFor: 1h30m
strategy: spread
weights: {unreservedMemory: -2, unreservedDisk: 0, unreservedCustom: 1.5, ownerInstances: 3,
  currentPlatform: 0.25, nextReboot: 4, near: 5, spread: 6, random: 1e-3}
owners:
  alice: 'node.labels.tier == "gold"'
  bob@site.org: node.labels.tier == "silver"
`

// Every field of a placement file is read into its setting. Names of RFD 60 and of Plimsoll are
// both accepted.
func TestParsePlacementReadsEveryField(t *testing.T) {
	p, err := config.ParsePlacement("placement.yaml", []byte(placementFile))
	if err != nil {
		t.Fatal(err)
	}
	want := placement.Settings{
		Batch: 20, All: true, MaxInstances: 8, Capness: true, Headnodes: true, SickFor: 5400,
		Strategy: plimsoll.StrategySpread,
		OwnerRules: map[string]string{
			"alice": `node.labels.tier == "gold"`, "bob@site.org": `node.labels.tier == "silver"`,
		},
		Weights: placement.Weights{
			UnreservedMemory: -2, UnreservedCustom: 1.5, OwnerInstances: 3, CurrentPlatform: 0.25, NextReboot: 4,
			Near: 5, Spread: 6, Random: 1e-3,
		},
	}
	if d := cmp.Diff(want, p.Settings); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if d := cmp.Diff(want, p.Chain.Settings); d != "" {
		t.Errorf("the chain has other settings (-want +got):\n%s", d)
	}
	stages := "setup running invalid-servers reserved traits load-instances calculate-unreserved min-memory min-cpu min-custom reservoir " +
		"sick-servers identity score-unreserved-memory score-random"
	if d := cmp.Diff(strings.Fields(stages), p.Chain.Stages()); d != "" {
		t.Errorf("stages (-want +got):\n%s", d)
	}
}

// A placement file is printed with all its fields, with lists in the order of the chain. It is
// read back to the same value.
func TestPlacementIsPrintedAsItIsRead(t *testing.T) {
	p, err := config.ParsePlacement("placement.yaml", []byte(placementFile))
	if err != nil {
		t.Fatal(err)
	}
	text, err := config.FormatPlacement(&p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := config.ParsePlacement("printed", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if again.EvictedFor != 7*time.Minute {
		t.Errorf("evictedFor became %v", again.EvictedFor)
	}
	if d := cmp.Diff(p.Settings, again.Settings); d != "" {
		t.Errorf("-want +got:\n%s\n%s", d, text)
	}
	if p.Chain.Text.String() != again.Chain.Text.String() || !slices.Equal(p.Chain.Stages(), again.Chain.Stages()) {
		t.Errorf("another chain: %v\n%s", again.Chain.Text, text)
	}
}

// A missing field means the same as a missing file: the default chain, without sick nodes for five
// minutes.
func TestPlacementFileMayBeShort(t *testing.T) {
	p, err := config.ParsePlacement("placement.yaml", []byte("batch: 7\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := config.DefaultPlacement()
	want.Settings.Batch = 7
	if d := cmp.Diff(want.Settings, p.Settings); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if !slices.Equal(p.Chain.Stages(), placement.Default().Stages()) {
		t.Errorf("another chain: %v", p.Chain.Stages())
	}
	if p.Settings.SickFor != 300 {
		t.Errorf("sick nodes stay out for %d seconds, want 300", p.Settings.SickFor)
	}
}

// The kind of a file follows from its keys.
func TestDetectKnowsPlacementFiles(t *testing.T) {
	for text, want := range map[string]config.FileKind{
		"chain: [pipe, running]\n": config.PlacementFileKind, "weights: {near: 1}\n": config.PlacementFileKind,
		"owners: {}\njob: a\n": config.JobFileKind, "partitions: []\n": config.QueueFileKind,
	} {
		if got, err := config.Detect("a.yaml", []byte(text)); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}
