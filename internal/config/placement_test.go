package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
)

const constrained = `
job: train
groups:
  - name: workers
    command: [train]
    constraints:
      traits: {ssd: true, hdd: false, gpu: [a100, h100], tier: gold, gen: 4, odd: "true"}
      networks: [external, [storage-a, storage-b]]
      platform: {min: {7.0: 20260114T101500Z, "": 20250101T000000Z}, max: 20270101T000000Z}
      volumesFrom: [db.main.0]
      near:
        - task: db.main.0
        - {job: cache}
      far: [{label: app=db}]
      spread: [{by: rack, maxSkew: 2}, {by: zone}, node]
      nodes: [n1, "gpu-*"]
      reservoir: never
      class: {cpu: 4, memory: 1.5}
      where: 'node.labels.zone == "a"'
    preferences:
      near: [{job: cache}]
      far: [{label: app=batch}]
      spread: [rack, {by: zone}]
      strategy: fewest-of-owner
  - name: plain
    command: [ls]
    constraints: {}
    preferences: {strategy: default, near: []}
`

func constrainedSpec() plimsoll.JobSpec {
	return plimsoll.JobSpec{ID: "train", Groups: []plimsoll.GroupSpec{
		{
			Name: "workers", Count: 1, Command: []string{"train"},
			Constraints: plimsoll.Constraints{
				Traits: map[string]plimsoll.Trait{
					"ssd": {Flag: true}, "hdd": {}, "gpu": {Words: []string{"a100", "h100"}},
					"tier": {Words: []string{"gold"}},
					"gen":  {Words: []string{"4"}}, "odd": {Words: []string{"true"}},
				},
				Networks: [][]string{{"external"}, {"storage-a", "storage-b"}},
				Platform: plimsoll.PlatformRange{
					Min: map[string]string{"7.0": "20260114T101500Z", "": "20250101T000000Z"},
					Max: map[string]string{"": "20270101T000000Z"},
				},
				VolumesFrom: []string{"db.main.0"},
				Near:        []plimsoll.Selector{{Task: "db.main.0"}, {Job: "cache"}},
				Far:         []plimsoll.Selector{{Label: "app=db"}},
				Spread: []plimsoll.Spread{
					{By: "rack", MaxSkew: 2}, {By: "zone", MaxSkew: 1}, {By: "node", MaxSkew: 1},
				},
				Nodes:     []string{"n1", "gpu-*"},
				Reservoir: plimsoll.ReservoirNever,
				Class:     map[string]float64{"cpu": 4, "memory": 1.5},
				Where:     `node.labels.zone == "a"`,
			},
			Preferences: plimsoll.Preferences{
				Near: []plimsoll.Selector{{Job: "cache"}}, Far: []plimsoll.Selector{{Label: "app=batch"}},
				Spread: []plimsoll.Spread{{By: "rack"}, {By: "zone"}}, Strategy: plimsoll.StrategyFewestOwner,
			},
		},
		{Name: "plain", Count: 1, Command: []string{"ls"}},
	}}
}

// Each field of constraints and preferences is read, in its long and its short form.
func TestParseJobReadsConstraints(t *testing.T) {
	spec, err := config.ParseJob("train.yaml", []byte(constrained))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(constrainedSpec(), spec); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// Constraints are printed in their short forms where these are complete; empty fields are left
// out.
func TestConstraintsArePrintedAsTheyAreRead(t *testing.T) {
	spec := constrainedSpec()
	text, err := config.FormatJob(&spec)
	if err != nil {
		t.Fatal(err)
	}
	const want = `job: train
groups:
  - name: workers
    count: 1
    command: [train]
    constraints:
      traits:
        gen: "4"
        gpu: [a100, h100]
        hdd: false
        odd: "true"
        ssd: true
        tier: gold
      networks:
        - external
        - [storage-a, storage-b]
      platform:
        min: {"": 20250101T000000Z, "7.0": 20260114T101500Z}
        max: 20270101T000000Z
      volumesFrom: [db.main.0]
      near:
        - task: db.main.0
        - job: cache
      far:
        - label: "app=db"
      spread:
        - by: rack
          maxSkew: 2
        - by: zone
          maxSkew: 1
        - by: node
          maxSkew: 1
      nodes: [n1, "gpu-*"]
      reservoir: never
      class: {cpu: 4, memory: 1.5}
      where: "node.labels.zone == \"a\""
    preferences:
      near:
        - job: cache
      far:
        - label: "app=batch"
      spread: [rack, zone]
      strategy: fewest-of-owner
  - name: plain
    count: 1
    command: [ls]
`
	if d := cmp.Diff(want, string(text)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	again, err := config.ParseJob("printed", text)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(spec, again); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
