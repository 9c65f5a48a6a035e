package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/client"
)

// runAs runs a command line of the binary with a home directory and further variables.
func runAs(t *testing.T, home string, variables []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out, notes strings.Builder
	cmd := exec.CommandContext(ctx, "plimsoll", args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(append(environment(), "HOME="+home), variables...), &out, &notes
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), notes.String(), cmd.ProcessState.ExitCode()
}

// TestCLIFindsTheTokenOfItsServer: the command line finds the token, or says where it looked. The
// flag goes before the variables, and PLIMSOLL_TOKEN before PLIMSOLL_TOKEN_FILE.
func TestCLIFindsTheTokenOfItsServer(t *testing.T) {
	t.Parallel()
	s, other := newSite(t), newSite(t)
	s.devOnPort()
	other.devOnPort()
	own, home, elsewhere := s.path("data", "user.token"), os.Getenv("HOME"), t.TempDir()
	text := strings.TrimPrefix(userToken(t, s.data()).Header(), "Bearer ")
	wrong, wrongText := other.path("data", "user.token"), strings.TrimPrefix(
		userToken(t, other.data()).Header(), "Bearer ",
	)
	stale := "that of another server, or of this one before it was started with another file; it is in its file " + own
	for _, test := range []struct {
		home      string
		variables []string
		flag      string
		says      string // empty: it works
	}{
		{home: home},
		{
			home: elsewhere,
			says: "this server wants a user token; it is in its file " + own +
				"; give it by --token-file, PLIMSOLL_TOKEN_FILE or PLIMSOLL_TOKEN",
		},
		{home: elsewhere, says: "; this caller sent no token: no server at " + strings.TrimPrefix(
			s.address, "http://",
		) + " has entered one for this user"},
		{home: elsewhere, flag: own},
		{home: elsewhere, variables: []string{"PLIMSOLL_TOKEN=" + text}},
		{home: elsewhere, variables: []string{"PLIMSOLL_TOKEN_FILE=" + own}},
		{
			home: elsewhere, flag: own,
			variables: []string{"PLIMSOLL_TOKEN=" + wrongText, "PLIMSOLL_TOKEN_FILE=" + wrong},
		},
		{home: elsewhere, variables: []string{"PLIMSOLL_TOKEN=" + text, "PLIMSOLL_TOKEN_FILE=" + wrong}},
		{home: home, flag: wrong, says: stale},
		{home: home, flag: wrong, says: "the token is that of --token-file"},
		{home: home, variables: []string{"PLIMSOLL_TOKEN=" + wrongText}, says: "the token is that of PLIMSOLL_TOKEN\n"},
		{
			home: home, variables: []string{"PLIMSOLL_TOKEN_FILE=" + wrong},
			says: "the token is that of PLIMSOLL_TOKEN_FILE\n",
		},
		{
			home: home, variables: []string{"PLIMSOLL_TOKEN=hunter2"},
			says: "plimsoll: PLIMSOLL_TOKEN: is not the user token of a gateway",
		},
		{home: home, flag: "/no/file", says: "there is no file /no/file with the user token"},
	} {
		args := []string{"--server", s.address, "node", "list"}
		if test.flag != "" {
			args = append(args, "--token-file", test.flag)
		}
		stdout, stderr, code := runAs(t, test.home, test.variables, args...)
		failed := code == exitFailed || code == exitUsage && strings.Contains(test.says, "is not the user token")
		if test.says == "" && (code != 0 || !strings.Contains(stdout, "n1")) ||
			test.says != "" && (!failed || !strings.Contains(stderr, test.says)) {
			t.Errorf("%v %s: exit code %d, %s, want %s", test.variables, test.flag, code, stderr, test.says)
		}
		if strings.Contains(stderr, text) || strings.Contains(stderr, wrongText) ||
			strings.Contains(stderr, "hunter2") {
			t.Errorf("%s shows the token", stderr)
		}
	}
	stdout, _, code := runAs(t, home, nil, "--server", s.address, "token")
	if code != 0 || stdout != own+"\n" {
		t.Errorf("plimsoll token: exit code %d, %s", code, stdout)
	}
	stdout, _, code = runAs(t, home, nil, "--server", s.address, "token", "--header")
	if code != 0 || stdout != "Authorization: Bearer "+text+"\n" {
		t.Errorf("plimsoll token --header: exit code %d", code)
	}
	if _, stderr, code := runAs(
		t, elsewhere, nil, "--server", s.address, "token",
	); code != exitFailed || !strings.Contains(stderr, "has entered one") {
		t.Errorf("plimsoll token without one: exit code %d, %s", code, stderr)
	}
}

// TestTokenIsNotSentToWhoListensNext: when a server has been killed, another program may get its
// port.
func TestTokenIsNotSentToWhoListensNext(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d, address := s.devOnPort()
	c, err := client.New(client.Config{Server: address, RetryBudget: -1}) // one that knew the token before
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Nodes(t.Context()); err != nil {
		t.Fatal(err)
	}
	entries, err := filepath.Glob(
		filepath.Join(os.Getenv("HOME"), ".config", "plimsoll", "tokens", "127.0.0.1_"+portOf(t, address)+".*"),
	)
	if err != nil || len(entries) != 2 {
		t.Errorf("entered are %v, %v", entries, err)
	}
	d.kill()
	l, err := net.Listen("tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 100)
	var server http.Server
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard <- r.Header.Get("Authorization")
		w.WriteHeader(http.StatusUnauthorized)
	})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	for range 3 {
		_, _ = c.Nodes(t.Context()) // it fails
		_, _, _ = s.cli("node", "list")
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	close(heard)
	calls := 0
	for authorization := range heard {
		if calls++; authorization != "" {
			t.Errorf("it was sent the token %q", authorization)
		}
	}
	if calls == 0 {
		t.Error("nobody called")
	}
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestTokensAreWithdrawnWhenARoleStops: no caller finds the token of a role that has stopped.
func TestTokensAreWithdrawnWhenARoleStops(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, d := range slices.Backward(c.daemons) {
		d.stop()
	}
	for _, listener := range []string{c.leader, c.gateway, c.agent} {
		left, err := filepath.Glob(
			filepath.Join(os.Getenv("HOME"), ".config", "plimsoll", "tokens", "127.0.0.1_"+portOf(t, listener)+".*"),
		)
		if err != nil || left != nil {
			t.Errorf("left are %v, %v", left, err)
		}
	}
	_, stderr, code := c.cli("node", "list", "--retry-for", "0s")
	if code != exitFailed || !strings.Contains(stderr, "cannot reach a server") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
