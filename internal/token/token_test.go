package token

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func wantCode(t *testing.T, err error, code plimsoll.Code, texts ...string) {
	t.Helper()
	if plimsoll.CodeOf(err) != code || err == nil {
		t.Fatalf("error %v, want code %s", err, code)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
}

func TestParseTakesWhatNewMakesAndNothingElse(t *testing.T) {
	for kind := User; kind < numKinds; kind++ {
		made := New(kind)
		text := *made.text
		if again, err := Parse(" " + text + "\n"); err != nil || again.Kind() != kind || !again.Matches(text) {
			t.Errorf("%s: %v, %v", kind, again, err)
		}
		if New(kind).Matches(text) {
			t.Errorf("%s: two tokens are the same", kind)
		}
		for _, bad := range []string{
			"", text[:len(text)-1], text + "x", "x" + text, strings.Replace(text, "_", "-", 1),
			text[:20] + "\x00" + text[21:],
		} {
			if _, err := Parse(bad); err == nil {
				t.Errorf("%q is taken for a token", bad)
			} else if len(bad) > 10 && strings.Contains(err.Error(), bad[len(bad)-20:]) {
				t.Errorf("the error %q repeats what was read", err)
			}
		}
		for _, bad := range []string{
			"", text[:len(text)-1], text + "x", text + strings.Repeat("x", 100), strings.ToUpper(text),
		} {
			if made.Matches(bad) {
				t.Errorf("%s: %q matches", kind, bad)
			}
		}
	}
}

// A token for one server is of no use at another one.
func TestTokenForAServerIsForItAlone(t *testing.T) {
	shared := New(Log)
	a, b := shared.For("10.0.0.1:9082"), shared.For("10.0.0.2:9082")
	if a.Matches(*b.text) || a.Matches(*shared.text) || !a.Matches(*shared.For("10.0.0.1:9082").text) {
		t.Error("the form for a server is not its own")
	}
	if _, err := Parse(*a.text); err != nil {
		t.Error(err)
	}
}

func TestNoWayOfPrintingShowsAToken(t *testing.T) {
	secret := New(User)
	inside := struct {
		t Token
		T Token
		p *Token
	}{secret, secret, &secret}
	var logged bytes.Buffer
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "token", secret, "inside", inside, "text", fmt.Sprint(inside))
	marshaled, err := json.Marshal(inside)
	if err != nil {
		t.Fatal(err)
	}
	printed := logged.String() + string(marshaled)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		printed += fmt.Sprintf(verb+verb, secret, inside)
	}
	raw := strings.TrimPrefix(*secret.text, User.prefix())
	if strings.Contains(printed, raw) || strings.Contains(printed, fmt.Sprintf("%x", raw)) {
		t.Errorf("%s shows %s", printed, raw)
	}
}

// Callers of Make at the same time get one token, in one file that only its user can read.
func TestMakeMakesOneToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "user.token")
	made := make([]Token, 8)
	var group sync.WaitGroup
	for i := range made {
		group.Go(func() {
			var err error
			if made[i], err = Make(User, path); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, m := range made {
		if !m.Matches(*made[0].text) || m.File() != path {
			t.Errorf("%v of %s is another token", m, m.File())
		}
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	if again, err := Make(User, path); err != nil || !again.Matches(*made[0].text) {
		t.Errorf("the next start has %v, %v", again, err)
	}
}

func TestTokenFileThatOthersReadIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "user.token")
	if _, err := Make(User, path); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602, 0o610, 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		for _, read := range []func(Kind, string) (Token, error){Load, Make} {
			_, err := read(User, path)
			wantCode(t, err, plimsoll.CodeDenied, "can be used by other users", "chmod 600 "+path)
		}
	}
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(User, path); err != nil {
		t.Error(err)
	}
}

func TestLoadRefusesWhatIsNoTokenFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(User, filepath.Join(dir, "none"))
	wantCode(t, err, plimsoll.CodeUnauthenticated, "there is no file", "it has to be copied")
	_, err = Load(User, write("junk", "hunter2"))
	wantCode(t, err, plimsoll.CodeInvalid, "is not a token")
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v repeats what the file holds", err)
	}
	_, err = Load(User, write("agent", *New(Agent).text))
	wantCode(t, err, plimsoll.CodeInvalid, "holds an agent token; a user token is needed")
	_, err = Load(User, write("empty", ""))
	wantCode(t, err, plimsoll.CodeInvalid, "remove it")
	for _, path := range []string{fifo, dir} {
		_, err = Load(User, path)
		wantCode(t, err, plimsoll.CodeInvalid, "is not a regular file")
	}
}

// home gives the test a home directory, and returns that of its entries.
func home(t *testing.T) string {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("SUDO_UID", "")
	return filepath.Join(dir, ".config", "plimsoll", "tokens")
}

func address(text string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text)) }

func enter(t *testing.T, listener string, tokens ...Token) {
	t.Helper()
	withdraw, err := Enter(address(listener), tokens)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(withdraw)
}

// A token goes to the server that entered it, and to no other.
func TestTokenIsFoundForItsServerAlone(t *testing.T) {
	home(t)
	user, agent, everywhere := New(User), New(Agent), New(User)
	enter(t, "127.0.0.1:9080", user, agent)
	enter(t, "[::]:9090", everywhere)
	for _, test := range []struct {
		server string
		kind   Kind
		want   Token
		at     string
	}{
		{"127.0.0.1:9080", User, user, "127.0.0.1:9080"},
		{"http://127.0.0.1:9080", User, user, "127.0.0.1:9080"},
		{"http://127.0.0.1:9080/", User, user, "127.0.0.1:9080"},
		{"localhost:9080", User, user, "127.0.0.1:9080"},
		{":9080", User, user, "127.0.0.1:9080"},
		{"127.0.0.1:9080", Agent, agent, "127.0.0.1:9080"},
		{"127.0.0.1:9080", Gateway, Token{}, ""},
		{"127.0.0.1:9081", User, Token{}, ""},
		{"127.0.0.2:9080", User, Token{}, ""},
		{"[::1]:9080", User, Token{}, ""},
		{"10.0.0.1:9080", User, Token{}, ""},
		{"example.org:9080", User, Token{}, ""},
		{"localhost.example.org:9080", User, Token{}, ""},
		{"unix:/run/plimsoll.sock", User, Token{}, ""},
		{"unix:127.0.0.1:9080", User, Token{}, ""},
		{"[::1]:9090", User, everywhere, "[::1]:9090"},
		{"127.0.0.1:9090", User, everywhere, "127.0.0.1:9090"},
	} {
		var got Token
		var at string
		if source := (Finder{Kind: test.kind}).For(test.server); source != nil {
			var err error
			if got, at, err = source.Get(); err != nil {
				t.Errorf("%s: %v", test.server, err)
			}
		}
		if got.Is() != test.want.Is() || got.Is() && !got.Matches(*test.want.text) || at != test.at {
			t.Errorf("%s token for %s: %v at %q", test.kind, test.server, got, at)
		}
	}
	enter(t, "192.0.2.1:9080", user)
	if left, err := filepath.Glob(
		filepath.Join(os.Getenv("HOME"), ".config/plimsoll/tokens/192*"),
	); err != nil || left != nil {
		t.Errorf("an address of a network was entered: %v, %v", left, err)
	}
}

// Another process may listen where a server has ended. The token of that server is not found, and
// is not sent on a new connection.
func TestTokenOfAServerThatHasEndedIsNotFound(t *testing.T) {
	dir := home(t)
	withdraw, err := Enter(address("127.0.0.1:9080"), []Token{New(User)})
	if err != nil {
		t.Fatal(err)
	}
	source := Finder{Kind: User}.For("127.0.0.1:9080")
	if got, _, err := source.Get(); err != nil || !got.Is() || source.Check() != nil {
		t.Fatalf("%v, %v", got, err)
	}
	path := filepath.Join(dir, "127.0.0.1_9080.user")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	withdraw()
	wantCode(t, source.Check(), plimsoll.CodeUnavailable)
	if got, _, err := source.Get(); got.Is() || err != nil ||
		!strings.Contains(source.String(), "no server at 127.0.0.1:9080") {
		t.Errorf("%v, %v, %v", got, err, source)
	}

	// A server that was killed leaves its entry, which names its process and the boot of the
	// machine.
	ended := exec.Command("true")
	if err := errors.Join(ended.Start(), ended.Wait()); err != nil {
		t.Fatal(err)
	}
	var e entry
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*owner){
		"a process that has ended":                 func(o *owner) { o.PID = ended.Process.Pid },
		"another process of the same id":           func(o *owner) { o.Started = "1" },
		"another machine with the same home":       func(o *owner) { o.Boot = "6c1f6b52-92a5-4df3-b2a5-3b24a3e2c4c0" },
		"nothing, since the file is of one before": func(o *owner) { *o = owner{} },
	} {
		changed := e
		change(&changed.Process)
		if err := changed.write(path); err != nil {
			t.Fatal(err)
		}
		source := Finder{Kind: User}.For("127.0.0.1:9080")
		if got, _, err := source.Get(); got.Is() || err != nil ||
			!strings.Contains(source.String(), "is of a server that has ended") {
			t.Errorf("%s: %v, %v, %v", name, got, err, source)
		}
	}
	enter(t, "127.0.0.1:9999", New(User))
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was left is not cleared away: %v", err)
	}
}

// Only the user and root can enter the tokens that the user's commands find.
func TestEntryOfAnotherUserIsNotTaken(t *testing.T) {
	dir := home(t)
	enter(t, "127.0.0.1:9080", New(User))
	path := filepath.Join(dir, "127.0.0.1_9080.user")
	found := func() bool {
		got, _, err := Finder{Kind: User}.For("127.0.0.1:9080").Get()
		return err == nil && got.Is()
	}
	if !found() {
		t.Fatal("the token is not found")
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if found() {
		t.Error("an entry that others read is taken")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	if err := errors.Join(os.Chmod(path, 0o600), os.Chown(path, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if found() {
		t.Error("an entry of another user is taken")
	}
}

// The entry that root writes for the user who called sudo belongs to that user. It does not follow
// links to places where that user may not write.
func TestEntryForTheUserOfSudoIsWrittenAsThatUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	root := t.TempDir()
	theirs, rootOnly := filepath.Join(root, "home"), filepath.Join(root, "root-only")
	if err := errors.Join(
		os.Chmod(filepath.Dir(root), 0o755), os.Chmod(root, 0o755), os.Mkdir(theirs, 0o700),
		os.Chown(theirs, 65534, 65534), os.Mkdir(rootOnly, 0o755),
	); err != nil {
		t.Fatal(err)
	}
	p := place{filepath.Join(theirs, ".config", "plimsoll", "tokens"), 65534, 65534}
	e := entry{Server: "127.0.0.1:9080", Token: *New(User).text}
	write := func(p place) error {
		return p.do(
			func() error { return errors.Join(p.clear(), e.write(filepath.Join(p.dir, "127.0.0.1_9080.user"))) },
		)
	}
	if err := write(p); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{p.dir, filepath.Join(p.dir, "127.0.0.1_9080.user")} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		stat := info.Sys().(*syscall.Stat_t)
		if stat.Uid != 65534 || stat.Gid != 65534 || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is of %d:%d with %v", path, stat.Uid, stat.Gid, info.Mode())
		}
	}
	p.dir = filepath.Join(theirs, "link")
	if err := os.Symlink(rootOnly, p.dir); err != nil {
		t.Fatal(err)
	}
	if err := write(p); !errors.Is(err, os.ErrPermission) {
		t.Errorf("through a link: %v", err)
	}
	if left, err := os.ReadDir(rootOnly); err != nil || len(left) > 0 {
		t.Errorf("root has written %v, %v", left, err)
	}
	if err := os.WriteFile(filepath.Join(rootOnly, "x"), nil, 0o600); err != nil {
		t.Errorf("this process is not root any more: %v", err)
	}
}

func TestHomeOfAnotherUserIsNotUsed(t *testing.T) {
	home(t)
	t.Setenv("HOME", "/no-home")
	if p, err := own(); err == nil && strings.HasPrefix(p.dir, "/no-home") {
		t.Errorf("a directory that is not there would be made: %v", p)
	}
	if os.Geteuid() == 0 {
		theirs := t.TempDir()
		if err := os.Chown(theirs, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		t.Setenv("HOME", theirs) // as sudo may leave it
		if p, err := own(); err == nil && strings.HasPrefix(p.dir, theirs) {
			t.Errorf("root enters its tokens in %s", p.dir)
		}
	}
}

func BenchmarkMatches(b *testing.B) {
	token := New(User)
	sent := *token.text
	b.ReportAllocs()
	for b.Loop() {
		if !token.Matches(sent) {
			b.Fatal("it does not match")
		}
	}
}
