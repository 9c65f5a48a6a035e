package config_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// TestAJobThatIsPrintedCanBeSubmittedAgain: a job that a program has submitted may hold any text.
// It is printed as a job file, from which the same job is read.
func TestAJobThatIsPrintedCanBeSubmittedAgain(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		spec := drawJob(t)
		if err := spec.Validate(); err != nil {
			t.Skip(err)
		}
		text, err := config.FormatJob(&spec)
		if err != nil {
			t.Fatal(err)
		}
		again, err := config.ParseJob("printed", text)
		if err != nil {
			t.Fatalf("printed but not readable: %v\n%s", err, text)
		}
		if d := cmp.Diff(spec, again, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("printed and read again (-printed +read):\n%s\n%s", d, text)
		}
	})
}

func drawJob(t *rapid.T) plimsoll.JobSpec {
	name := rapid.StringMatching(`[a-z][a-z0-9-]{0,20}[a-z0-9]`)
	texts := rapid.MapOfN(rapid.String(), rapid.String(), 0, 3)
	s := plimsoll.JobSpec{
		ID: name.Draw(t, "id"), Owner: rapid.String().Draw(t, "owner"), Queue: "root." + name.Draw(t, "queue"),
		Labels: texts.Draw(t, "labels"),
	}
	for range rapid.IntRange(1, 3).Draw(t, "groups") {
		s.Groups = append(s.Groups, plimsoll.GroupSpec{
			Name: name.Draw(t, "name"), Count: rapid.Int32Range(1, 1000).Draw(t, "count"),
			Command: rapid.SliceOfN(rapid.String(), 1, 4).Draw(t, "command"), Env: texts.Draw(t, "env"),
			WorkDir: rapid.String().Draw(t, "workDir"), User: rapid.String().Draw(t, "user"),
			UserGroup: rapid.String().Draw(t, "userGroup"),
			Resources: plimsoll.Resources{
				plimsoll.CPU:    rapid.Int64Range(0, 1<<40).Draw(t, "cpu"),
				plimsoll.Memory: rapid.Int64Range(0, 1<<50).Draw(t, "memory"),
			},
			MaxRuntime: time.Duration(rapid.Int64Min(0).Draw(t, "maxRuntime")),
			KillGrace:  time.Duration(rapid.Int64Min(0).Draw(t, "killGrace")),
			LogLimit:   rapid.Int64Min(0).Draw(t, "logLimit"), Priority: rapid.Int32().Draw(t, "priority"),
		})
	}
	if g := &s.Groups[0]; rapid.Bool().Draw(t, "has indexes") {
		at := int32(-1)
		for range rapid.IntRange(1, 5).Draw(t, "indexes") {
			at += rapid.Int32Range(1, 100).Draw(t, "step")
			g.Indexes = append(g.Indexes, at)
		}
		g.Count = int32(len(g.Indexes))
	}
	return s
}
