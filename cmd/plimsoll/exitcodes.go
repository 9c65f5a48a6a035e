package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// Exit codes of all commands. run also ends with the exit code of its task, see exitCodes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// exitCodes is the table of all exit codes in the help and in docs/reference/exit-codes.md.
var exitCodes = [...]struct{ code, means string }{
	{fmt.Sprint(exitOK), "it was done"},
	{fmt.Sprint(exitFailed), "it failed, or the answer is no: the job did not complete, nothing is there"},
	{fmt.Sprint(exitUsage), "it was called wrongly, or with a wrong file or value; nothing was done"},
	{"126", "run: the program is there and cannot be executed"},
	{"127", "run: there is no such program"},
	{"128+N", "run: signal N ended the program"},
	{fmt.Sprint(exitInterrupted), "it was interrupted; a watch that is interrupted ends with 0"},
	{"other", "run: the exit code of the program"},
}

// exitCodesHelp returns the table as text for help.
func exitCodesHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, row := range exitCodes {
		fmt.Fprintf(&b, "\n  %-5s  %s", row.code, row.means)
	}
	return b.String()
}

// exitError ends the process with a code and without a further message.
type exitError int

func (e exitError) Error() string { return "exit" }

// exitCodeFor returns the exit code for the error of a command. A wrong command line ends with
// exitUsage before there is a command.
func exitCodeFor(err error) int {
	var said exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &said):
		return int(said)
	case canceled(err):
		return exitInterrupted
	case plimsoll.CodeOf(err) == plimsoll.CodeInvalid:
		return exitUsage
	}
	return exitFailed
}

// exitCodeOfTask returns the exit code of run for its task: that of the task, or exitFailed. A task
// has no exit code if its end was not seen, or if it never started for a reason other than its
// program.
func exitCodeOfTask(t *plimsoll.Task) int {
	switch {
	case t.Result == plimsoll.ResultSucceeded:
		return exitOK
	case t.ExitCode >= 1 && t.ExitCode <= 255:
		return int(t.ExitCode)
	}
	return exitFailed
}
