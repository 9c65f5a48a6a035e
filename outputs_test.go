package plimsoll

import (
	"path"
	"path/filepath"
	"strings"
	"testing"
)

func TestOutputs(t *testing.T) {
	good := []string{
		"out", "out/report.csv", "*.csv", "out/[a-c]?/part-*", `odd\*name`, "…/größe", ".hidden", "..two", "a b",
	}
	if err := ValidateOutputs("outputs", good); err != nil {
		t.Error(err)
	}
	for output, want := range map[string]string{
		"":                                   "is empty",
		"/etc/shadow":                        "begins at the root",
		"..":                                 "leads upwards",
		"../other/work/x":                    "leads upwards",
		"out/../../x":                        "leads upwards",
		"./out":                              "empty or a dot",
		"out/":                               "empty or a dot",
		"a//b":                               "empty or a dot",
		"[a":                                 "is no pattern",
		"a\nb":                               "control character",
		"a\x00b":                             "control character",
		"\x1b[31m":                           "control character",
		"\u202egnp.exe":                      "control character",
		"\xff":                               "no UTF-8",
		strings.Repeat("x", MaxOutputPath+1): "at most 1024",
	} {
		err := ValidateOutputs("groups[0].outputs", []string{"out", output})
		if CodeOf(err) != CodeInvalid || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "groups[0].outputs[1]") {
			t.Errorf("%q: %v, want %q", output, err, want)
		}
	}
	err := ValidateOutputs("outputs", make([]string, MaxOutputs+1))
	if err == nil || !strings.Contains(err.Error(), "65 entries") {
		t.Error(err)
	}
}

// An output that passes stays below the directory that it is joined to.
func FuzzOutputs(f *testing.F) {
	f.Add("out/*.csv")
	f.Add("../x")
	f.Fuzz(func(t *testing.T, output string) {
		if ValidateOutputs("outputs", []string{output}) != nil {
			return
		}
		if !filepath.IsLocal(output) || path.Clean(output) != output {
			t.Fatalf("%q passed", output)
		}
	})
}
