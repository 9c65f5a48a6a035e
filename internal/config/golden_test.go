package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGoldenErrors compares every message about a wrong file with testdata/*_errors.golden.
func TestGoldenErrors(t *testing.T) {
	t.Run("job", func(t *testing.T) {
		golden(t, "job_errors", func(name string, data []byte) error {
			_, err := config.ParseJob(name, data)
			return err
		})
	})
	t.Run("queue", func(t *testing.T) {
		golden(t, "queue_errors", func(name string, data []byte) error {
			_, err := config.ParseQueues(name, data)
			return err
		})
	})
	t.Run("policy", func(t *testing.T) {
		golden(t, "policy_errors", func(name string, data []byte) error {
			_, err := config.ParsePolicies(name, data)
			return err
		})
	})
	t.Run("placement", func(t *testing.T) {
		golden(t, "placement_errors", func(name string, data []byte) error {
			_, err := config.ParsePlacement(name, data)
			return err
		})
	})
}

func golden(t *testing.T, base string, parse func(name string, data []byte) error) {
	t.Helper()
	cases := readCases(t, filepath.Join("testdata", base+".txtar"))
	if len(cases) < 10 {
		t.Fatalf("only %d cases; the file was not read", len(cases))
	}
	var got strings.Builder
	for _, c := range cases {
		err := parse(c.name+".yaml", []byte(c.text))
		if err == nil {
			t.Errorf("%s: is accepted", c.name)
			continue
		}
		if code := plimsoll.CodeOf(err); code != plimsoll.CodeInvalid {
			t.Errorf("%s: code %v, want invalid", c.name, code)
		}
		got.WriteString(err.Error() + "\n")
	}
	path := filepath.Join("testdata", base+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("messages changed (-want +got); rewrite with -update if that is meant:\n%s", d)
	}
}

type testCase struct{ name, text string }

// readCases reads a file of "-- name --" sections. Text before the first section is a comment.
func readCases(t testing.TB, path string) []testCase {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var cases []testCase
	for line := range strings.Lines(string(data)) {
		name, isHeader := strings.CutPrefix(line, "-- ")
		switch {
		case isHeader:
			cases = append(cases, testCase{name: strings.TrimSuffix(name, " --\n")})
		case len(cases) > 0:
			cases[len(cases)-1].text += line
		}
	}
	return cases
}
