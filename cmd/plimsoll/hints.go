package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/plimsoll-dev/plimsoll"
)

// otherWords maps commands of other programs to ours. Words that are commands elsewhere in the
// tree, such as logs for job logs, need no line here.
var otherWords = map[string][]string{
	"ps": {"job list"}, "ls": {"job list"}, "jobs": {"job list"}, "tasks": {"task list"},
	"nodes": {"node list"}, "queues": {"queue list"}, "policies": {"policy list"}, "status": {"job get"},
	"describe": {"job get", "node show", "explain"}, "inspect": {"job get"}, "info": {"job get"},
	"log": {"job logs"}, "tail": {"job logs -f"}, "attach": {"job logs -f"}, "follow": {"job logs -f"},
	"watch": {"job wait"}, "stop": {"job kill"}, "cancel": {"job kill"}, "delete": {"job delete", "job kill"},
	"rm": {"job delete", "job kill"}, "abort": {"job kill"}, "create": {"submit"}, "add": {"submit"},
	"batch": {"submit"}, "exec": {"run"}, "srun": {"run"}, "sbatch": {"submit"}, "start": {"submit", "dev"},
	"up": {"dev"}, "server": {"dev"}, "serve": {"dev"}, "master": {"coordinator"}, "worker": {"agent"},
	"why": {"explain"}, "timeline": {"history job"}, "billing": {"usage"}, "accounting": {"usage"},
	"event": {"events list"}, "retry": {"job run-again"},
	"rerun": {"job run-again"}, "restart": {"job run-again"}, "login": {"token"}, "auth": {"token"},
	"validate": {"config check"}, "lint": {"config check"}, "fit": {"place"}, "rebalance": {"defrag --plan"},
	"disable": {"node cordon"}, "enable": {"node uncordon"}, "decommission": {"node drain"},

	"job ls": {"job list"}, "job ps": {"job list"}, "job show": {"job get"}, "job describe": {"job get"},
	"job status": {"job get"}, "job stop": {"job kill"}, "job cancel": {"job kill"},
	"job rm": {"job delete", "job kill"}, "job watch": {"job wait"}, "job tail": {"job logs -f"},
	"job create": {"submit"}, "job tasks": {"task list --job"}, "job resize": {"job scale"},
	"job retry": {"job run-again"}, "job rerun": {"job run-again"}, "job restart": {"job run-again"},
	"task ls": {"task list"}, "task get": {"explain"}, "task show": {"explain"}, "task describe": {"explain"},
	"task tail": {"job logs -f"}, "task stop": {"job kill"}, "node ls": {"node list"},
	"node get": {"node show"}, "node describe": {"node show"}, "node rm": {"node remove"},
	"node delete": {"node remove"}, "node disable": {"node cordon"}, "node enable": {"node uncordon"},
	"queue ls": {"queue list"}, "queue get": {"queue list"}, "queue show": {"queue list"},
	"queue set": {"config apply"}, "queue create": {"config apply"}, "queue delete": {"config apply"},
}

var unexpectedArgument = regexp.MustCompile(`^unexpected argument (\S+)`)

// hint returns an error with suggestions if the command line is wrong because of an unknown
// command, and else nil.
func hint(root *kong.Node, err error) error {
	var parse *kong.ParseError
	if !errors.As(err, &parse) || parse.Context == nil {
		return nil
	}
	word := unexpectedArgument.FindStringSubmatch(parse.Error())
	at := root
	if selected := parse.Context.Selected(); selected != nil {
		at = selected
	}
	if word == nil || len(at.Children) == 0 {
		return nil
	}
	wrong := strings.TrimSuffix(word[1], ",")
	meant := meantBy(root, at, wrong)
	text := "see plimsoll " + strings.TrimSpace(commandName(at)+" --help")
	if len(meant) > 0 {
		text = "did you mean plimsoll " + strings.Join(meant, " or plimsoll ") + "?"
	}
	return fmt.Errorf("there is no command %q; %s", strings.TrimSpace(commandName(at)+" "+wrong), text)
}

// meantBy returns the commands that an unknown word may stand for: the counterpart of another
// program's command, commands of that name elsewhere, and commands with a similar name.
func meantBy(root, at *kong.Node, word string) []string {
	before := commandName(at)
	if meant := otherWords[strings.TrimSpace(before+" "+strings.ToLower(word))]; len(meant) > 0 {
		return slices.Clone(meant)
	}
	if near := plimsoll.Nearest(word, childNames(at)); near != "" {
		return []string{strings.TrimSpace(before + " " + near)}
	}
	leaves := leavesOf(root)
	names := make([]string, len(leaves))
	for i, leaf := range leaves {
		names[i] = leaf.Name
	}
	near := plimsoll.Nearest(word, names)
	var meant []string
	for _, leaf := range leaves {
		if leaf.Name == near {
			meant = append(meant, commandName(leaf))
		}
	}
	return meant
}

func childNames(at *kong.Node) []string {
	var names []string
	for _, child := range at.Children {
		if !child.Hidden {
			names = append(names, child.Name)
		}
	}
	return names
}

// leavesOf returns the commands below a node that have no commands of their own.
func leavesOf(node *kong.Node) []*kong.Node {
	if len(node.Children) == 0 {
		return []*kong.Node{node}
	}
	var leaves []*kong.Node
	for _, child := range node.Children {
		if !child.Hidden {
			leaves = append(leaves, leavesOf(child)...)
		}
	}
	return leaves
}

// commandName returns the words of a command as they are typed after plimsoll.
func commandName(node *kong.Node) string { return strings.Join(commandPath(node), " ") }
