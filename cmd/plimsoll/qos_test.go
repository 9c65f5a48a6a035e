package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll/client"
)

// golden compares output with a file of testdata/golden.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("(-want +got); rewrite with -update if that is meant\n%s", d)
	}
}

// TestQOSGolden compares the output about a node's QoS with testdata/golden.
func TestQOSGolden(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"node-top":           "node top n1 --once",
		"node-top-json":      "node top n1 --once -o json",
		"node-top-quiet":     "node top n2 --once",
		"node-top-nothing":   "node top n3 --once",
		"node-top-interval":  "node top n1 --interval=-1s",
		"node-top-plain":     "node top n1",
		"node-top-lines":     "node top n2 -o json",
		"qos-preview":        "qos preview n1",
		"qos-preview-json":   "qos preview n1 -o json",
		"qos-preview-quiet":  "qos preview n2",
		"qos-preview-nobody": "qos preview n3",
		"policy-test":        "policy test -f testdata/policies.yaml --node n1",
		"policy-test-json":   "policy test -f testdata/policies.yaml --node n1 -o json",
		"policy-test-other":  "policy test -f testdata/policies.yaml --node n2",
		"policy-test-nobody": "policy test -f testdata/policies.yaml --node n3",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, _ := serve(t)
			golden(t, name, transcript(t, address, args))
		})
	}
}

// transcript runs a command line and returns its whole output.
func transcript(t *testing.T, address, args string) string {
	t.Helper()
	stdout, stderr, code := plimsollAt(
		t.Context(), address, append([]string{"--retry-for", "0s"}, strings.Fields(args)...)...,
	)
	got := "$ plimsoll " + args + "\n" + stdout
	if stderr != "" {
		got += "-- stderr --\n" + stderr
	}
	if code != 0 {
		got += "-- exit code " + string(rune('0'+code)) + " --\n"
	}
	return got
}

// TestTopOnScreens: the picture is as wide and as high as the terminal. The columns that matter
// least are left out first, and colours only repeat information that words give.
func TestTopOnScreens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		width, height int
		color         bool
	}{
		"top-wide-color": {200, 50, true},
		"top-100":        {100, 50, false},
		"top-60":         {60, 50, false},
		"top-low":        {120, 14, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &app{
				now: func() time.Time { return testNow }, screen: func() (int, int) { return c.width, c.height },
				color: c.color,
			}
			q := busy(t)
			text := (&top{live: true}).picture(a, &q, c.height-1)
			golden(t, name, text)
			lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			if len(lines) >= c.height {
				t.Errorf("%d lines on a screen of %d", len(lines), c.height)
			}
			for _, line := range lines {
				if n := cells(line); !c.color && n > c.width {
					t.Errorf("%d cells on a screen of %d: %s", n, c.width, line)
				}
			}
			if c.color {
				for _, s := range []style{strong, faint, alarm, notice} {
					text = strings.ReplaceAll(text, "\x1b["+string(s)+"m", "")
				}
				a.color = false
				if d := cmp.Diff(
					(&top{live: true}).picture(a, &q, c.height-1), strings.ReplaceAll(text, "\x1b[0m", ""),
				); d != "" {
					t.Errorf("without colours it says something else (-plain +coloured):\n%s", d)
				}
			}
		})
	}
}

// busy reads the busy node through a client.
func busy(t *testing.T) client.NodeQOS {
	t.Helper()
	address, _ := serve(t)
	c, err := client.New(client.Config{Server: address, RetryBudget: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q, err := oneSample(t.Context(), c, "n1")
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestTopRedrawsInPlace: on a terminal it has a screen of its own; when it ends, that is given back
// with the last picture on it, and the steps of an earlier sample are still to be read.
func TestTopRedrawsInPlace(t *testing.T) {
	t.Parallel()
	address, _ := serve(t)
	var out, notes bytes.Buffer
	code := execute(t.Context(), process{
		args: []string{"--server", address, "--retry-for", "0s", "node", "top", "n1"}, stdin: strings.NewReader(""),
		stdout: &out, stderr: &notes,
		screen: func() (int, int) { return 120, 40 }, now: func() time.Time { return testNow },
	})
	text := out.String()
	if code != exitFailed || notes.String() != "plimsoll: the agent of node n1 has been stopped\n" {
		t.Errorf("exit code %d, %s", code, notes.String())
	}
	rest, opened := strings.CutPrefix(text, screenOpen)
	during, after, closed := strings.Cut(rest, screenClose)
	if !opened || !closed || strings.Count(during, screenHome) != 2 || strings.Contains(after, "\x1b") {
		t.Fatalf("%q", text)
	}
	if !strings.Contains(after, "the last steps, just now") || !strings.Contains(after, "quota 1.5 cores → 1.2 cores") {
		t.Errorf("left on the terminal:\n%s", after)
	}
}

// TestAnInterruptEndsTop: the interrupt is not an error.
func TestAnInterruptEndsTop(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"table", "json"} {
		address, _ := serve(t)
		ctx, interrupt := context.WithCancel(t.Context())
		var notes bytes.Buffer
		code := execute(ctx, process{
			args: []string{"--server", address, "node", "top", "n1", "-o", format}, stdin: strings.NewReader(""),
			stdout: &trigger{on: "812", do: interrupt}, stderr: &notes, now: func() time.Time { return testNow },
		})
		if code != 0 || notes.String() != "" {
			t.Errorf("-o %s: exit code %d, %s", format, code, notes.String())
		}
	}
}

// TestCellsOfText: characters that take two columns of a terminal, or none, are counted so. No
// character is cut in the middle.
func TestCellsOfText(t *testing.T) {
	for _, c := range []struct {
		text  string
		cells int
		cut   string // to five cells
	}{
		{"web.main.0", 10, "web.…"},
		{"größer", 6, "größ…"},
		{"e\u0301tude.main", 10, "e\u0301tud…"},
		{"計算機.main", 11, "計算…"},
		{"한국어", 6, "한국…"},
		{"🚢🚢🚢", 6, "🚢🚢…"},
		{"a b c d", 7, "a b…"},
	} {
		if got := cells(c.text); got != c.cells {
			t.Errorf("%s: %d cells, want %d", c.text, got, c.cells)
		}
		if got := cut(c.text, 5); got != c.cut || cells(got) > 5 {
			t.Errorf("%s is cut to %q, want %q", c.text, got, c.cut)
		}
	}
	if got := cut("web", 0); got != "" {
		t.Errorf("%q", got)
	}
}
