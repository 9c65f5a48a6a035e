// Command plimsoll is every role of a Plimsoll cluster and the command line that talks to one.
//
// The client commands (submit, run, job, task, node, queue, events, explain, place, config,
// version) are written with package client only. The role commands assemble the packages of a role;
// they are in roles.go. A command is a struct with its flags and arguments as fields, a Help method
// with an example, and a Run method; commands.go lists them all.
//
// Tables and -o json or yaml go to stdout, progress and errors to stderr. An error is one line (a
// wrong file: one line a problem) that starts with "plimsoll:". The exit codes are those of the
// table in exitcodes.go.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/agent"
	"github.com/plimsoll-dev/plimsoll/internal/memory"
)

// oneSignal is the time in which signals count as one: timeout sends its signal to the process, and
// then to the group with the process in it.
const oneSignal = 100 * time.Millisecond

func main() {
	_, _ = memory.Keep() // without a known limit the collector uses the default
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(oneSignal, stop) }) // a second signal ends the process at once
	os.Exit(execute(ctx, process{
		args: os.Args[1:], stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		terminal: term.IsTerminal(int(os.Stdout.Fd())), live: term.IsTerminal(int(os.Stderr.Fd())), screen: screen(),
		color: colors(), now: time.Now,
		secrets: takeSecrets(), unread: unreadInput, line: stderrTerminal(),
	}))
}

// screen returns a function that returns the size of the terminal that stdout is; nil if stdout is
// no terminal.
func screen() func() (width, height int) {
	out := int(os.Stdout.Fd())
	if !term.IsTerminal(out) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return func() (width, height int) {
		width, height, err := term.GetSize(out)
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24
		}
		return width, height
	}
}

// colors reports whether stdout may be coloured (no-color.org).
func colors() bool { return os.Getenv("NO_COLOR") == "" && screen() != nil }

// process is a command's view of the operating system process: arguments, streams and terminal.
type process struct {
	args           []string
	stdin          io.Reader
	stdout, stderr io.Writer
	terminal       bool                       // stdout is a terminal
	live           bool                       // stderr is a terminal, where a line can be rewritten
	screen         func() (width, height int) // size of the terminal that stdout is; nil: stdout is no terminal
	color          bool                       // that terminal shows colours, and NO_COLOR is not set
	now            func() time.Time
	secrets        secrets
	unread         func() int   // number of unread bytes in stdin; nil: not known
	line           lineTerminal // where progress is shown, if live
}

// exited is the value of the panic by which kong's Exit leaves the parser, after a help text.
type exited int

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, p process) (code int) {
	defer func() {
		if r := recover(); r != nil {
			l, ok := r.(exited)
			if !ok {
				panic(r)
			}
			code = int(l)
		}
	}()
	var root commands
	a := &app{
		in: p.stdin, out: &output{w: p.stdout, terminal: p.terminal}, notes: &output{w: p.stderr, terminal: p.live},
		live: p.live, screen: p.screen, color: p.color, now: p.now,
	}
	a.live, a.line = p.live && !p.line.plain, p.line
	parser, err := newParser(&root, p)
	if err != nil {
		a.notes.printf("plimsoll: %s\n", err)
		return exitFailed
	}
	k, err := parser.Parse(p.args)
	if err == nil && k.Selected().Target.Addr().Interface() == &root.HelpOf {
		_, err = parser.Parse(append(root.HelpOf.Command, "--help"))
	}
	if path, ok := withoutCommand(err); ok {
		return usage(ctx, p, path)
	}
	if meant := hint(parser.Model.Node, err); meant != nil {
		a.notes.printf("plimsoll: %s\n", meant)
		return exitUsage
	}
	if err != nil {
		a.notes.printf("plimsoll: %s; see plimsoll %s--help\n", err, selected(err))
		return exitUsage
	}
	if a.consistency, err = plimsoll.ParseConsistency(root.Consistency); err != nil {
		return report(a, err)
	}
	a.server, a.retryFor, a.tokenFile, a.secrets = root.Server, root.RetryFor, root.TokenFile, p.secrets
	a.unread = p.unread
	if role := k.Selected().Name; a.tokenFile != "" && slices.Contains(roleNames, role) {
		a.notes.printf(
			"plimsoll: --token-file is for commands that call a server; see plimsoll %s --help for the token files of this role\n",
			role,
		)
		return exitUsage
	}
	k.BindTo(ctx, (*context.Context)(nil))
	err = a.withNearJob(ctx, k.Selected(), k.Run(a))
	a.close()
	if err == nil {
		err = a.out.failure()
	}
	if canceled(err) && ctx.Err() == nil { // the command was not interrupted
		err = plimsoll.Errorf(
			plimsoll.CodeUnavailable,
			"the server ended the call, as one does that is being stopped; jobs go on: try again",
		)
	}
	return report(a, err)
}

func canceled(err error) bool {
	return err != nil && (plimsoll.CodeOf(err) == plimsoll.CodeCanceled || errors.Is(err, context.Canceled))
}

// flagDefaults are the variables in the tags of flags.
func flagDefaults() kong.Vars {
	return kong.Vars{
		"maxTasks": strconv.Itoa(int(agent.DefaultMaxTasks)),
		"taskPids": strconv.FormatInt(agent.DefaultTaskPids, 10),
	}
}

func newParser(root *commands, p process) (*kong.Kong, error) {
	return kong.New(
		root, kong.Name("plimsoll"), kong.Description(description), kong.Writers(p.stdout, p.stderr),
		flagDefaults(), durations(), kong.Exit(func(code int) { panic(exited(code)) }),
		kong.Configuration(loadFlags),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
}

// selected returns the command of a wrong command line, as far as it could be read.
func selected(err error) string {
	var e *kong.ParseError
	if !errors.As(err, &e) || e.Context == nil || e.Context.Selected() == nil {
		return ""
	}
	return commandName(e.Context.Selected()) + " "
}

// report prints an error, a line a problem, and returns the exit code for it.
func report(a *app, err error) int {
	code := exitCodeFor(err)
	var said exitError
	switch {
	case err == nil || errors.As(err, &said):
		return code
	case code == exitInterrupted: // whoever interrupts a command knows why it ended
		if plimsoll.CodeOf(err) == plimsoll.CodeOutcomeUnknown {
			a.notes.printf("plimsoll: interrupted: the change was made or not; look before you try again\n")
		}
		return code
	}
	for line := range strings.Lines(a.explainError(err)) {
		a.notes.printf("plimsoll: %s\n", strings.TrimRight(line, "\n"))
	}
	return code
}
