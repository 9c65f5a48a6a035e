package lint_test

import (
	"slices"
	"testing"
	"testing/fstest"

	"github.com/plimsoll-dev/plimsoll/internal/lint"
)

const generated = `package a
import "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
import "github.com/plimsoll-dev/plimsoll/internal/wire"
`

func TestCheckHandlersFindsServicesWithoutBounds(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(generated + text)} }
	found, err := lint.CheckHandlers(fstest.MapFS{
		"a/none.go":  file("func f() { plimsollv1connect.NewJobServiceHandler(s) }"),
		"a/other.go": file("func f() { plimsollv1connect.NewLogServiceHandler(s, connect.WithReadMaxBytes(1)) }"),
		"a/elsewhere.go": file(
			"func g() { o := wire.Bounded(b) }\nfunc f() { plimsollv1connect.NewLogServiceHandler(s, o) }",
		),
		"a/spread.go": file(
			"func f() { o := []int{wire.Bounded(b)}\nplimsollv1connect.NewLogServiceHandler(s, o...) }",
		),
		"a/direct.go": file("func f() { plimsollv1connect.NewLogServiceHandler(s, wire.BoundedPlain(b)) }"),
		"a/client.go": file("func f() { plimsollv1connect.NewLogServiceClient(s) }"),
		"a/a_test.go": file("func f() { plimsollv1connect.NewJobServiceHandler(s) }"),
		"a/renamed.go": {
			Data: []byte(
				"package a\nimport x \"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect\"\nvar h = x.NewJobServiceHandler(s)",
			),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := places(found)
	slices.Sort(got)
	if want := []string{"a/elsewhere.go:5", "a/none.go:4", "a/other.go:4", "a/renamed.go:3"}; !slices.Equal(got, want) {
		t.Errorf("found %v, want findings at %v", got, want)
	}
}
