package transport

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/token"
)

func checked(t testing.TB, user token.Token) (access *Access, handler http.Handler) {
	t.Helper()
	access = NewAccess(AccessConfig{
		Grants: func() ([]Grant, error) { return []Grant{{Token: user}}, nil }, Pages: "/docs/",
	})
	if err := access.prepare(); err != nil {
		t.Fatal(err)
	}
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	return access, newEntry(ServeConfig{Access: access}, false, nothing)
}

// A request through a proxy on this machine may come from anywhere.
func TestHealthNeedsNoTokenOnLoopback(t *testing.T) {
	access, handler := checked(t, token.New(token.User))
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/", "/docs", "/docs/", "/docs/x.html"} {
		for _, test := range []struct {
			remote, header string
			status         int
		}{
			{"127.0.0.1:1234", "", 200},
			{"127.8.7.6:1234", "", 200},
			{"[::1]:1234", "", 200},
			{"[::ffff:127.0.0.1]:1234", "", 200},
			{"10.0.0.1:1234", "", 401},
			{"[2001:db8::1]:1234", "", 401},
			{"", "", 401},
			{"@", "", 401},
			{"127.0.0.1:1234", "Forwarded", 401},
			{"127.0.0.1:1234", "X-Forwarded-For", 401},
			{"127.0.0.1:1234", "x-forwarded-for", 401},
			{"127.0.0.1:1234", "X-Real-IP", 401},
			{"127.0.0.1:1234", "Via", 401},
		} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.RemoteAddr = test.remote
			if test.header != "" {
				r.Header.Set(test.header, "")
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code != test.status {
				t.Errorf("%s from %s with %s: %d", path, test.remote, test.header, w.Code)
			}
		}
	}
	if got := access.Refused(); got != 63 {
		t.Errorf("%d requests are counted as refused", got)
	}
}

// The pages are only what stands below their path, and a server without pages opens nothing for
// them. A path with dots may lead elsewhere.
func TestOnlyPagesNeedNoToken(t *testing.T) {
	_, handler := checked(t, token.New(token.User))
	without := NewAccess(AccessConfig{})
	for target, want := range map[string]int{
		"GET /docs": 200, "HEAD /": 200, "POST /docs/": 401, "POST /": 401, "GET /docsx": 401,
		"GET /docs/../plimsoll.v1.JobService/ListJobs": 401, "GET /docs//x": 401, "GET /x": 401,
	} {
		method, path, _ := strings.Cut(target, " ")
		r := httptest.NewRequest(method, path, nil)
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: %d, want %d", target, w.Code, want)
		}
		if without.needsNone(r) {
			t.Errorf("%s needs no token where there are no pages", target)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	if w.Code != 401 || !strings.Contains(w.Body.String(), "reads the reference at /docs/ without a token") {
		t.Errorf("/ from another machine: %d %s", w.Code, w.Body)
	}
}

// Where the server keeps its tokens is no business of other machines.
func TestPathOfTheFileIsToldToThisMachineAlone(t *testing.T) {
	user, err := token.Make(token.User, t.TempDir()+"/user.token")
	if err != nil {
		t.Fatal(err)
	}
	access, _ := checked(t, user)
	for remote, want := range map[string]string{
		"127.0.0.1:1": "in its file " + user.File() + ";",
		"10.0.0.1:1":  "in its file user.token;",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = remote
		if got := access.unauthenticated(r, "", false); !strings.Contains(got, want) {
			t.Errorf("%s is told %s", remote, got)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	user := token.New(token.User)
	_, handler := checked(b, user)
	r := httptest.NewRequest(http.MethodPost, "/plimsoll.v1.JobService/SubmitJob", nil)
	r.Header.Set("Authorization", user.Header())
	w := httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		handler.ServeHTTP(w, r)
	}
}
