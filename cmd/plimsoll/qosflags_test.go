package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/agent"
)

// parseQOS parses a command line of a role with a node, and returns the configuration of its QoS
// loop.
func parseQOS(t *testing.T, args ...string) (agent.QOSConfig, error) {
	t.Helper()
	var root commands
	parser, err := newParser(&root, process{stdout: new(bytes.Buffer), stderr: new(bytes.Buffer)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		return agent.QOSConfig{}, err
	}
	if args[0] == "dev" {
		return root.Dev.qosFlags.parse()
	}
	return root.Agent.qosFlags.parse()
}

// Both commands that make a machine a node have the flags, with the same meaning; parts are written
// as in --reserve.
func TestQOSFlags(t *testing.T) {
	for _, role := range []string{"dev", "agent"} {
		cfg, err := parseQOS(t, role)
		if err != nil || cfg.Interval != time.Second || cfg.Metrics != nil ||
			cfg.Extended.Enabled || cfg.Extended.CPUReserve != 10 || cfg.Extended.MemoryReserve != 10 {
			t.Errorf("%s without flags: %+v, %v", role, cfg, err)
		}
		cfg, err = parseQOS(
			t, role, "--qos-interval", "250ms", "--extended", "--extended-cpu-reserve", "25%",
			"--extended-memory-reserve", "0.29", "--extended-warm-up", "1m",
		)
		if err != nil || cfg.Interval != 250*time.Millisecond || !cfg.Extended.Enabled ||
			cfg.Extended.CPUReserve != 25 || cfg.Extended.MemoryReserve != 29 || cfg.Extended.WarmUp != time.Minute {
			t.Errorf("%s with flags: %+v, %v", role, cfg, err)
		}
	}
}

func TestQOSFlagsThatCannotBe(t *testing.T) {
	nonsense := filepath.Join(t.TempDir(), "metrics.yaml")
	if err := os.WriteFile(nonsense, []byte("[[["), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ flag, value, says string }{
		{"--qos-interval", "1ms", "qos-interval: is 1ms; give a duration from 50ms"},
		{"--qos-interval", "1h", "qos-interval: is 1h0m0s"},
		{"--qos-interval", "soon", "qos-interval"},
		{"--extended-warm-up", "-1s", "extended-warm-up: is -1s"},
		{"--extended-cpu-reserve", "101%", "extended-cpu-reserve: "},
		{"--extended-cpu-reserve", "-1%", "extended-cpu-reserve: "},
		{"--extended-cpu-reserve", "0.155", "a whole percentage"},
		{"--extended-memory-reserve", "NaN", "extended-memory-reserve: "},
		{"--extended-memory-reserve", "half", "such as 10% or 0.1"},
		{"--metrics", filepath.Join(t.TempDir(), "none.yaml"), "none.yaml"},
		{"--metrics", nonsense, "metrics.yaml"},
	} {
		_, err := parseQOS(t, "agent", c.flag+"="+c.value)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %s: %v; want %q in it", c.flag, c.value, err, c.says)
		}
	}
}
