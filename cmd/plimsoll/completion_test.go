package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

func grammar(t *testing.T) *kong.Node {
	t.Helper()
	var root commands
	parser, err := newParser(&root, process{stdout: io.Discard, stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model.Node
}

// The completions of the last word follow from the words before it.
func TestWordsAreCompleted(t *testing.T) {
	root := grammar(t)
	for _, test := range []struct{ line, want string }{
		{"jo", "job"},
		{"job ", "delete fetch get kill list logs run-again scale wait"},
		{"job l", "list logs"},
		{"help", "help"},
		{"job list -o ", "json name table wide yaml"},
		{"job list --output j", "json"},
		{"job list --output=t", "--output=table"},
		{"job list --output = y", "yaml"}, // as bash hands it over
		{"job list --output =", "json name table wide yaml"},
		{"job logs a --tail 5 --str", "--stream"},
		{"job logs --stream ", "both stderr stdout"},
		{"--server x jo", "job"}, // a value is no command
		{"--server job li", ""},  // even if it looks like one
		{"completion ", "bash fish zsh"},
		{"completion z", "zsh"},
		{"job logs ", ""}, // any text: the ids are not known here
		{"submit ", ""},
		{"run -- job ", ""}, // a command to run
		{"run job ", ""},
		{"nonsense x", ""},
		{"supervis", ""}, // hidden
		{"__", ""},
	} {
		var got []string
		for _, c := range complete(root, strings.Split(test.line, " ")) {
			got = append(got, c.text)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%q becomes %v, want %q", test.line, got, test.want)
		}
	}
}

// Every command and flag that help shows is offered, with its text in help.
func TestAllCommandsAndFlagsAreCompleted(t *testing.T) {
	root := grammar(t)
	var walk func(node *kong.Node, words []string)
	walk = func(node *kong.Node, words []string) {
		offered := func(want, help string) {
			found := complete(root, append(slices.Clone(words), want))
			if !slices.Contains(found, candidate{want, help}) {
				t.Errorf("%v: %s is not offered, or not as %q", words, want, help)
			}
		}
		for _, f := range node.Flags {
			if !f.Hidden {
				offered("--"+f.Name, f.Help)
			}
		}
		for _, child := range node.Children {
			if !child.Hidden {
				offered(child.Name, child.Help)
				walk(child, append(slices.Clone(words), child.Name))
			}
		}
	}
	walk(root, nil)
}

// Each shell takes its script, and completes with it.
func TestCompletionsOfShells(t *testing.T) {
	for shell, script := range map[string]string{
		"bash": `. ./script; COMP_WORDS=(plimsoll job l); COMP_CWORD=2; _plimsoll; printf '%s\n' "${COMPREPLY[@]}"`,
		"zsh": `compdef() { :; }; _describe() { print -l "${${(P)2}[@]%%:*}"; }; . ./script
words=(plimsoll job l); CURRENT=3; _plimsoll`,
		"fish": `source ./script; complete -C 'plimsoll job l' | string replace -r '\t.*' ''`,
	} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("%s is not installed", shell)
			}
			stdout, stderr, code := plimsollAt(t.Context(), "127.0.0.1:1", "completion", shell)
			if code != 0 || stderr != "" {
				t.Fatalf("exit code %d, %s", code, stderr)
			}
			dir := t.TempDir()
			calls := "#!/bin/sh\n[ \"$1\" = __complete ] && printf 'list\\tList jobs.\\nlogs\\tPrint: all.\\n'\n"
			for name, text := range map[string]string{"script": stdout, "plimsoll": calls} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), path, "-c", script)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir)
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != "list\nlogs\n" {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
