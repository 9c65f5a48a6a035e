package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// helpCmd is "plimsoll help", which prints the same as --help.
type helpCmd struct {
	Command []string `arg:"" optional:"" help:"The command, such as job logs. Without it all commands are listed."`
}

// Help is the detail of the help text.
func (helpCmd) Help() string { return example("plimsoll help", "plimsoll help job logs") }

// Run is not called: execute prints the help of the command that is named.
func (*helpCmd) Run() error { return nil }

// versionFlag is --version, which prints the same as "plimsoll version".
type versionFlag bool

// BeforeReset is called by kong when it meets the flag, before it checks for missing arguments.
func (versionFlag) BeforeReset(k *kong.Kong) error {
	if err := writeVersion(k.Stdout, buildVersion()); err != nil {
		return err
	}
	k.Exit(exitOK)
	return nil
}

func writeVersion(w io.Writer, v versionView) error {
	_, err := fmt.Fprintf(w, "plimsoll %s (%s, %s)\n", v.Version, v.Go, v.Platform)
	return err
}

// commandPath returns the names of a command and of its parents.
func commandPath(node *kong.Node) (names []string) {
	for ; node != nil && node.Type == kong.CommandNode; node = node.Parent {
		names = append(names, node.Name)
	}
	slices.Reverse(names)
	return names
}

// withoutCommand reports whether a command line ends before its command is complete. path holds the
// names that it has.
func withoutCommand(err error) (path []string, ok bool) {
	var e *kong.ParseError
	if !errors.As(err, &e) || e.Context == nil || !strings.HasPrefix(err.Error(), "expected ") {
		return nil, false
	}
	node := e.Context.Selected()
	if node == nil {
		node = e.Context.Model.Node
	}
	return commandPath(node), !node.Leaf()
}

// usage prints help to stderr, for a call without a command.
func usage(ctx context.Context, p process, path []string) int {
	p.args, p.stdout = append(path, "--help"), p.stderr
	execute(ctx, p)
	return exitUsage
}
