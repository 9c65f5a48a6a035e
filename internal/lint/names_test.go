package lint

import (
	"fmt"
	"testing"
	"testing/fstest"
)

func TestADesignNamesOnlyTestsFilesAndNamesThatExist(t *testing.T) {
	root := fstest.MapFS{
		"a/queue.go": {Data: []byte("package queue\n\ntype Line struct{ head int }\n\nfunc (l *Line) shift() {}\n\nvar most = 3\n")},
		"a/queue_test.go": {Data: []byte(
			"package queue\n\nimport \"testing\"\n\nfunc TestOrder(t *testing.T) {}\n\nfunc BenchmarkOrder(b *testing.B) {}\n",
		)},
	}
	const page = "`TestOrder` and `BenchmarkOrder` hold it, `TestNothing` does not. `nothing` is prose.\n\n" +
		"| there | code | test |\n|---|---|---|\n" +
		"| `gone` | `Line.shift`, `queue.go`, `Line.head`, `queue.Line`, `most`, `a + b` | `TestOrder` |\n" +
		"| x | `Line.gone`, `gone.go` | `TestGone` |\n\n" +
		"| there | here |\n|---|---|\n| x | `gone` |\n"
	root["DESIGN.md"] = &fstest.MapFile{Data: []byte(page)}
	found, err := CheckNames(root, []string{"DESIGN.md"})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(found)
	const want = "[DESIGN.md:1: names TestNothing, and there is no such test " +
		"DESIGN.md:6: names TestGone, and there is no such test " +
		"DESIGN.md:6: names Line.gone, and nothing is called gone " +
		"DESIGN.md:6: names the file gone.go, which does not exist]"
	if got != want {
		t.Errorf("found\n%s\nwant\n%s", got, want)
	}
}
