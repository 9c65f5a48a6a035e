package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

func commandTree(t *testing.T) *kong.Node {
	t.Helper()
	var root commands
	parser, err := newParser(&root, process{stdout: io.Discard, stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model.Node
}

// The error for an unknown command names the command that is meant.
func TestAWordThatIsNoCommandIsAnsweredWithTheOneThatIsMeant(t *testing.T) {
	for args, want := range map[string]string{
		"logs":              "plimsoll job logs?",
		"logs -f wordcount": "plimsoll job logs?",
		"log wordcount":     "plimsoll job logs?",
		"kill wordcount":    "plimsoll job kill?",
		"stop wordcount":    "plimsoll job kill?",
		"ps":                "plimsoll job list?",
		"wait wordcount":    "plimsoll job wait?",
		"scale wordcount 3": "plimsoll job scale?",
		"drain n1":          "plimsoll node drain?",
		"sumbit job.yaml":   "plimsoll submit?",
		"job lgos":          "plimsoll job logs?",
		"job stop":          "plimsoll job kill?",
		"task logs a.map.0": "plimsoll job logs?",
		"node get n1":       "plimsoll node show?",
		"queue apply x":     "plimsoll policy apply or plimsoll config apply?",
		"zzzzzz":            "see plimsoll --help",
		"job zzzzzz":        "see plimsoll job --help",
	} {
		_, stderr, code := plimsollAt(t.Context(), "", strings.Fields(args)...)
		const begins = "plimsoll: there is no command "
		if code != exitUsage || !strings.HasPrefix(stderr, begins) || !strings.HasSuffix(stderr, want+"\n") {
			t.Errorf("%s: exit code %d, %swant %s", args, code, stderr, want)
		}
	}
}

// Each hint leads from a word that is no command to an existing command.
func TestHintsLeadToCommands(t *testing.T) {
	root := commandTree(t)
	find := func(path []string) (at *kong.Node, rest []string) {
		at = root
		for i, name := range path {
			j := slices.IndexFunc(at.Children, func(n *kong.Node) bool { return n.Name == name })
			if j < 0 {
				return at, path[i:]
			}
			at = at.Children[j]
		}
		return at, nil
	}
	for words, meant := range otherWords {
		if at, rest := find(strings.Fields(words)); len(rest) != 1 || len(at.Children) == 0 {
			t.Errorf("%q is a command, or stands behind one that takes arguments", words)
		}
		for _, command := range meant {
			path := slices.DeleteFunc(strings.Fields(command), func(word string) bool { return word[0] == '-' })
			if at, rest := find(path); len(rest) > 0 || len(at.Children) > 0 {
				t.Errorf("%q leads to %q, which is no command", words, command)
			}
		}
	}
}

// run does not pass standard input on, and says so if there is any.
func TestRunSaysThatItDoesNotPassItsStandardInputOn(t *testing.T) {
	address, _ := serve(t)
	for name, c := range map[string]struct {
		unread []int // at each look
		says   bool
	}{
		"nothing stands there": {[]int{0, 0}, false},
		"from the start":       {[]int{7, 7}, true},
		"later":                {[]int{0, 7}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var out, notes bytes.Buffer
			looks := 0
			code := execute(t.Context(), process{
				args:  []string{"--server", address, "run", "--", "echo", "hello"},
				stdin: strings.NewReader(""), stdout: &out, stderr: &notes,
				now:    func() time.Time { return testNow },
				unread: func() int { looks++; return c.unread[looks-1] },
			})
			said := strings.Count(notes.String(), "run does not pass its standard input on")
			if code != 0 || said > 1 || (said == 1) != c.says {
				t.Errorf("exit code %d, %q", code, notes.String())
			}
		})
	}
	stdout, _, _ := plimsollAt(t.Context(), address, "run", "--help")
	if !strings.Contains(strings.Join(strings.Fields(stdout), " "), "reads an empty standard input") {
		t.Errorf("the help does not say it:\n%s", stdout)
	}
}
