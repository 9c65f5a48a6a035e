package main

import (
	"cmp"
	_ "embed"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCmd prints the completion script of a shell. The script calls the program itself, so
// the completions are always those of its version.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

// Help is the detail of the help text.
func (completionCmd) Help() string {
	return example("source <(plimsoll completion bash)", "plimsoll completion zsh > ~/.zfunc/_plimsoll",
		"plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish")
}

// The scripts call "plimsoll __complete" with the words before the cursor. If its answer is empty
// they offer file names.
var (
	//go:embed completion/bash
	completionBash string
	//go:embed completion/zsh
	completionZsh string
	//go:embed completion/fish
	completionFish string
)

// Run prints the script.
func (cmd *completionCmd) Run(a *app) error {
	scripts := map[string]string{"bash": completionBash, "zsh": completionZsh, "fish": completionFish}
	a.out.printf("%s", scripts[cmd.Shell])
	return nil
}

// completeCmd is the hidden command that the scripts call.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words after plimsoll; the last one is completed."`
}

// Help is the detail of the help text.
func (completeCmd) Help() string { return example("plimsoll __complete -- job lo") }

// Run prints the completions of the last word, a line each, with a description behind a tab.
func (cmd *completeCmd) Run(a *app, k *kong.Kong) error {
	words := cmd.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	for _, c := range complete(k.Model.Node, words) {
		a.out.printf("%s\t%s\n", c.text, oneLine(c.help))
	}
	return nil
}

// candidate is a completion of a word.
type candidate struct{ text, help string }

// complete returns the completions of the last word; none: the word may be a file name or any text.
// complete has no side effects. It knows only the command line, not the objects of the cluster.
func complete(root *kong.Node, words []string) []candidate {
	words = joinValues(words)
	line := commandLine{node: root, flags: slices.Clone(root.Flags)}
	before, last := words[:len(words)-1], words[len(words)-1]
	for _, word := range before {
		if line.free {
			return nil
		}
		line.read(word)
	}
	switch name, value, assigned := strings.Cut(last, "="); {
	case line.free:
		return nil
	case line.value != nil:
		return values(line.value, "", last)
	case strings.HasPrefix(last, "-") && assigned:
		return values(line.flag(name), name+"=", value)
	case strings.HasPrefix(last, "-"):
		return line.flagsLike(last)
	case !line.node.Leaf():
		return commandsLike(line.node, last)
	case line.args < len(line.node.Positional):
		return values(line.node.Positional[line.args], "", last)
	}
	return nil
}

// joinValues joins words that bash has split: --output=json arrives as three words. The last word
// stays apart, because bash replaces only that word.
func joinValues(words []string) []string {
	var out []string
	for i, word := range words {
		flag := i > 0 && strings.HasPrefix(words[i-1], "--") && !strings.Contains(words[i-1], "=")
		if word == "=" && flag {
			if i == len(words)-1 {
				out = append(out, "")
			}
			continue
		}
		out = append(out, word)
	}
	return out
}

// commandLine is the state of the parser after the words before the last one.
type commandLine struct {
	node  *kong.Node
	flags []*kong.Flag // of the node and of its parents
	value *kong.Value  // a flag whose value comes next; nil: none
	args  int          // number of arguments that the node has so far
	free  bool         // the rest is the command line of another program
}

func (l *commandLine) read(word string) {
	switch {
	case l.value != nil:
		l.value = nil
	case word == "--":
		l.free = true
	case strings.HasPrefix(word, "-"):
		if name, _, assigned := strings.Cut(word, "="); !assigned {
			if f := l.flag(name); f != nil && !f.IsBool() && !f.IsCounter() {
				l.value = f
			}
		}
	default:
		l.descend(word)
	}
}

func (l *commandLine) descend(word string) {
	for _, child := range l.node.Children {
		if child.Name == word || slices.Contains(child.Aliases, word) {
			l.node, l.flags, l.args = child, append(l.flags, child.Flags...), 0
			return
		}
	}
	if l.args < len(l.node.Positional) {
		l.free = l.node.Positional[l.args].Passthrough
		if !l.node.Positional[l.args].IsCumulative() {
			l.args++
		}
	}
}

// flag finds a flag by its name, such as --output or -o; nil: there is none.
func (l *commandLine) flag(name string) *kong.Value {
	for _, f := range l.flags {
		if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
			return f.Value
		}
	}
	return nil
}

func (l *commandLine) flagsLike(prefix string) (found []candidate) {
	for _, f := range l.flags {
		if name := "--" + f.Name; !f.Hidden && strings.HasPrefix(name, prefix) {
			found = append(found, candidate{name, f.Help})
		}
	}
	return sorted(found)
}

func commandsLike(node *kong.Node, prefix string) (found []candidate) {
	for _, child := range node.Children {
		if !child.Hidden && strings.HasPrefix(child.Name, prefix) {
			found = append(found, candidate{child.Name, child.Help})
		}
	}
	return sorted(found)
}

// values returns the values of an enumeration that begin with prefix. before is the part of the
// word that comes before the value.
func values(of *kong.Value, before, prefix string) (found []candidate) {
	if of == nil || of.Enum == "" {
		return nil
	}
	for value := range of.EnumMap() {
		if strings.HasPrefix(value, prefix) {
			found = append(found, candidate{before + value, ""})
		}
	}
	return sorted(found)
}

func sorted(list []candidate) []candidate {
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(a.text, b.text) })
	return list
}
