package main

import (
	"cmp"
	_ "embed"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCmd prints the completions of a shell. They ask the program itself, so they are always
// those of its version.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

// Help is the detail of the help text.
func (completionCmd) Help() string {
	return example("source <(plimsoll completion bash)", "plimsoll completion zsh > ~/.zfunc/_plimsoll",
		"plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish")
}

// The scripts. Each calls "plimsoll __complete" with the words before the cursor, and offers
// names of files where that says nothing.
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

// completeCmd is what the scripts call.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words behind plimsoll; the last one is completed."`
}

// Help is the detail of the help text.
func (completeCmd) Help() string { return example("plimsoll __complete -- job lo") }

// Run prints what the last word can become, a line each, with a description behind a tab.
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

// candidate is what a word can become.
type candidate struct{ text, help string }

// complete returns what the last word can become; none: names of files, or whatever the user wants.
// It has no side effects and knows only the command line, not what is in the cluster.
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

// joinValues joins what bash takes apart: it hands --output=json over as three words. The last word
// stays apart, because bash replaces that one alone.
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

// commandLine is what the words before the last one say.
type commandLine struct {
	node  *kong.Node
	flags []*kong.Flag // of the node and of those above
	value *kong.Value  // a flag that waits for its value; nil: none does
	args  int          // arguments of the node
	free  bool         // what follows is not ours: a command to run
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

// values are those of an enumeration, behind what stands before them in the same word.
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
