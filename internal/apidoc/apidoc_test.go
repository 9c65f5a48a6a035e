package apidoc_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/apidoc"
)

func get(t *testing.T, method, path, tag string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	if tag != "" {
		r.Header.Set("If-None-Match", tag)
	}
	w := httptest.NewRecorder()
	apidoc.Handler().ServeHTTP(w, r)
	return w
}

func TestThePagesOfTheReferenceAreServed(t *testing.T) {
	first := get(t, "GET", "/docs/", "")
	tag := first.Header().Get("ETag")
	if first.Code != http.StatusOK || !strings.HasPrefix(first.Header().Get("Content-Type"), "text/html") || tag == "" {
		t.Fatalf("the first page: %d %v", first.Code, first.Header())
	}
	for _, tc := range []struct {
		name, method, path, tag string
		status                  int
	}{
		{"the same page", "GET", "/docs/index.html", "", http.StatusOK},
		{"one that the browser has", "GET", "/docs/", tag, http.StatusNotModified},
		{"one that has changed", "GET", "/docs/", `"old"`, http.StatusOK},
		{"without its body", "HEAD", "/docs/types.html", "", http.StatusOK},
		{"without the slash", "GET", "/docs", "", http.StatusMovedPermanently},
		{"no page", "GET", "/docs/nothing.html", "", http.StatusNotFound},
		{"no directory", "GET", "/docs/../apidoc.go", "", http.StatusNotFound},
		{"a change", "POST", "/docs/", "", http.StatusMethodNotAllowed},
	} {
		if w := get(t, tc.method, tc.path, tc.tag); w.Code != tc.status {
			t.Errorf("%s: %s %s is %d, want %d", tc.name, tc.method, tc.path, w.Code, tc.status)
		}
	}
}

// A page may not run scripts or load anything from elsewhere, and its links lead to pages that
// exist.
func TestPagesNeedNothingFromElsewhere(t *testing.T) {
	link := regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	paths := []string{"index.html", "types.html"}
	for _, s := range apidoc.Services() {
		paths = append(paths, s[strings.LastIndexByte(s, '.')+1:]+".html")
	}
	for _, path := range paths {
		w := get(t, "GET", apidoc.Root+path, "")
		body := w.Body.String()
		policy := w.Header().Get("Content-Security-Policy")
		if w.Code != http.StatusOK || !strings.HasPrefix(policy, "default-src 'none'") {
			t.Errorf("%s: %d with the policy %q", path, w.Code, policy)
		}
		if strings.Contains(body, "<script") {
			t.Errorf("%s has a script", path)
		}
		for _, m := range link.FindAllStringSubmatch(body, -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if to == "./" {
				to = ""
			}
			if to == "" && anchor != "" {
				to = path
			}
			linked := get(t, "GET", apidoc.Root+to, "")
			if linked.Code != http.StatusOK {
				t.Errorf("%s has a link to %s, which is %d", path, m[1], linked.Code)
			}
			if anchor != "" && !strings.Contains(linked.Body.String(), `id="`+anchor+`"`) {
				t.Errorf("%s has a link to %s, and there is no such section", path, m[1])
			}
		}
	}
}
