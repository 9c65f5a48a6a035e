package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// The table in the code is the one of the help and of docs/reference/exit-codes.md.
func TestTheTableOfExitCodesStandsInHelpAndInThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/exit-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	stdout, _, _ := plimsollAt(t.Context(), "", "--help")
	for _, row := range exitCodes {
		if line := fmt.Sprintf("| %s | %s |", row.code, row.means); !strings.Contains(string(page), line) {
			t.Errorf("docs/reference/exit-codes.md lacks the line %s", line)
		}
		if line := fmt.Sprintf("    %-5s  %s\n", row.code, row.means); !strings.Contains(stdout, line) {
			t.Errorf("plimsoll --help lacks %q", line)
		}
	}
}

// A wrong call ends with 2, wherever the mistake is found, and a failure ends with 1.
func TestAWrongCallEndsWith2AndAFailureWith1(t *testing.T) {
	address, _ := serve(t)
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("jbo: a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]int{
		"job list":                            exitOK,
		"frobnicate":                          exitUsage,
		"job list --bogus":                    exitUsage,
		"job list -o xml":                     exitUsage,
		"job list --state runnign":            exitUsage,
		"job list --result kiled":             exitUsage,
		"job scale waiting many":              exitUsage,
		"job scale waiting -- -1":             exitUsage,
		"run --cpu lots -- true":              exitUsage,
		"submit " + bad:                       exitUsage,
		"submit nowhere.yaml":                 exitUsage,
		"config check " + bad:                 exitUsage,
		"dev --token-file x":                  exitUsage,
		"place testdata/job.yaml -o x":        exitUsage,
		"job get nothing":                     exitFailed,
		"job wait flaky":                      exitFailed,
		"submit testdata/job.yaml --id flaky": exitFailed,
		"run -- exit 3":                       3,
	} {
		if _, stderr, code := plimsollAt(t.Context(), address, strings.Fields(args)...); code != want {
			t.Errorf("%s: exit code %d, want %d\n%s", args, code, want, stderr)
		}
	}
	if _, _, code := plimsollAt(
		t.Context(), "unix:"+bad+".none", "--retry-for", "0s", "job", "list",
	); code != exitFailed {
		t.Errorf("without a server: exit code %d", code)
	}
}

// Each kind of error has its exit code, also when another error wraps it.
func TestErrorsHaveTheExitCodesOfTheTable(t *testing.T) {
	invalid := plimsoll.Invalid("count", "is -1")
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, exitOK},
		{errors.New("something"), exitFailed},
		{invalid, exitUsage},
		{fmt.Errorf("submit: %w", invalid), exitUsage},
		{plimsoll.Errorf(plimsoll.CodeNotFound, "there is no job"), exitFailed},
		{plimsoll.Errorf(plimsoll.CodeCanceled, "the call was canceled"), exitInterrupted},
		{exitError(7), 7},
	} {
		if got := exitCodeFor(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
	for _, c := range []struct {
		task plimsoll.Task
		want int
	}{
		{plimsoll.Task{Result: plimsoll.ResultSucceeded}, exitOK},
		{plimsoll.Task{Result: plimsoll.ResultFailed, ExitCode: 7}, 7},
		{plimsoll.Task{Result: plimsoll.ResultFailed, ExitCode: 128 + 9}, 137},
		{plimsoll.Task{Result: plimsoll.ResultNeverStarted, ExitCode: 127}, 127},
		{plimsoll.Task{Result: plimsoll.ResultNeverStarted, ExitCode: 126}, 126},
		{plimsoll.Task{Result: plimsoll.ResultNeverStarted, ExitCode: -1}, exitFailed},
		{plimsoll.Task{Result: plimsoll.ResultLost}, exitFailed},
	} {
		if got := exitCodeOfTask(&c.task); got != c.want {
			t.Errorf("%v with %d: %d, want %d", c.task.Result, c.task.ExitCode, got, c.want)
		}
	}
}
