package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
)

// parseNode parses a command line of a role with a node, and returns the settings of the node.
func parseNode(t *testing.T, args ...string) (nodeSettings, *nodeFlags, error) {
	t.Helper()
	var root commands
	parser, err := newParser(&root, process{stdout: new(bytes.Buffer), stderr: new(bytes.Buffer)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		return nodeSettings{}, nil, err
	}
	flags := &root.Agent.nodeFlags
	if args[0] == "dev" {
		flags = &root.Dev.nodeFlags
	}
	s, err := flags.parse()
	return s, flags, err
}

func fullFacts() plimsoll.NodeFacts {
	return plimsoll.NodeFacts{
		Traits: map[string]plimsoll.Trait{
			"ssd": {Flag: true}, "nvme": {Flag: true}, "hdd": {}, "gpu": {Words: []string{"a100", "h100"}},
			"tier": {Words: []string{"gold"}},
		},
		Release: "7.0", Platform: "20260114T101500Z", Headnode: true, Reservoir: true, NextReboot: 1798081200,
		Reserve:       map[string]float64{"memory": 0.15, "cpu": 0.05},
		Overprovision: map[string]float64{"cpu": 4, "memory": 1.5},
		MaxTasks:      12,
	}
}

// The flags of a node are the same for dev and agent.
func TestNodeFlags(t *testing.T) {
	for _, role := range []string{"dev", "agent"} {
		s, flags, err := parseNode(t, role, "--attributes", "rack=r7", "--capacity", "cpu=2",
			"--trait", "ssd", "--trait=nvme=true", "--trait", "hdd=false", "--trait", "gpu=a100,h100",
			"--trait", "tier=gold", "--network", "eth0", "--network", "storage=eth1",
			"--reserve", "memory=0.15", "--reserve", "cpu=5%",
			"--overprovision", "cpu=4", "--overprovision", "memory=1.5",
			"--release", "7.0", "--platform", "20260114T101500Z", "--headnode", "--reservoir",
			"--next-reboot", "2026-12-24T03:00:00Z", "--max-tasks", "12", "--task-pids", "99")
		if err != nil {
			t.Fatal(role, err)
		}
		if diff := cmp.Diff(fullFacts(), s.facts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", role, diff)
		}
		if diff := cmp.Diff(pairFlags{"eth0": "", "storage": "eth1"}, flags.Network); diff != "" {
			t.Errorf("%s (-want +got):\n%s", role, diff)
		}
		if s.capacity["cpu"] != 2000 || flags.Attributes["rack"] != "r7" || flags.TaskPids != 99 {
			t.Errorf("%s: capacity %v, attributes %v", role, s.capacity, flags.Attributes)
		}
	}
}

// The flags can also stand in a file, with lists and mappings where they read better. A flag of the
// command line goes first.
func TestNodeFlagsInAFile(t *testing.T) {
	for name, text := range map[string]string{
		"mappings": "trait: {ssd: true, nvme:, hdd: false, gpu: [a100, h100], tier: gold}\nnetwork: {eth0:, storage: eth1}\n" +
			"reserve: {memory: 0.15, cpu: 5%}\noverprovision: {cpu: 4, memory: 1.5}\nrelease: \"7.0\"\nplatform: 20260114T101500Z\n" +
			"headnode: true\nreservoir: true\nmax-tasks: 12\nnext-reboot: 2026-12-24T03:00:00Z\n",
		"lists": "trait: [ssd, nvme, hdd=false, 'gpu=a100,h100', tier=gold]\nnetwork: [eth0, storage=eth1]\n" +
			"reserve: {memory: 15%, cpu: 5%}\noverprovision: {cpu: 4, memory: 1.5}\nrelease: \"7.0\"\nplatform: 20260114T101500Z\n" +
			"headnode: true\nreservoir: true\nmax-tasks: 12\nnext-reboot: 2026-12-24T04:00:00+01:00\n",
	} {
		path := filepath.Join(t.TempDir(), "agent.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, flags, err := parseNode(t, "agent", "--config", path)
		if err != nil {
			t.Fatal(name, err)
		}
		if diff := cmp.Diff(fullFacts(), s.facts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(pairFlags{"eth0": "", "storage": "eth1"}, flags.Network); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if s, _, err = parseNode(
			t, "agent", "--config", path, "--trait", "other",
		); err != nil || len(s.facts.Traits) != 1 {
			t.Errorf("%s: with a flag the traits are %v, %v", name, s.facts.Traits, err)
		}
	}
}

// The error for a wrong value names its flag and a correct value.
func TestNodeFlagsRefused(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--trait gpu=", "--trait: \"gpu=\" lacks a name or a value"},
		{"--trait =a100", "lacks a name"},
		{"--trait gpu=a100 --trait gpu=h100", `"gpu" is given twice`},
		{"--trait gpu=a100,,h100", "trait.gpu: \"a100,,h100\" holds an empty word"},
		{"--network a=eth0 --network a=eth1", `"a" is given twice`},
		{"--reserve memory=lots", "reserve.memory: \"lots\" is not a number; write for example 0.15 or 15%"},
		{"--reserve memory=1", "reserve.memory: is 1; give the part"},
		{"--reserve memory=100%", "reserve.memory: is 1; give the part"},
		{"--reserve memory=nan", "reserve.memory: is NaN"},
		{"--reserve memory=-0.1", "reserve.memory: is -0.1"},
		{"--overprovision cpu=0", "overprovision.cpu: is 0"},
		{"--overprovision cpu=inf", "overprovision.cpu: is +Inf"},
		{"--overprovision cpu=many", "write for example 4"},
		{"--platform yesterday", "platform: \"yesterday\" is not the stamp"},
		{"--next-reboot tomorrow", "next-reboot: \"tomorrow\" is not an instant; write for example 2026-12-24T03:00:00Z"},
		{"--next-reboot 1969-01-01T00:00:00Z", "nextReboot: is negative"},
	} {
		_, _, err := parseNode(t, append([]string{"agent"}, strings.Fields(test.args)...)...)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want … %s …", test.args, err, test.want)
		}
	}
}

// pairFlags decodes its own values for kong.
var _ kong.MapperValue = (*pairFlags)(nil)
