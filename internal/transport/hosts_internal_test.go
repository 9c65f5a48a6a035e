package transport

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestRefusal(t *testing.T) {
	const loopback, any4, any6, lan = "127.0.0.1:9080", "0.0.0.0:9080", "[::]:9080", "10.0.0.5:9080"
	others := []string{"GW.example.org", "2001:db8::7", "unix:/run/p.sock", ":9080", "http://listen.example:9080", ""}
	for _, test := range []struct {
		name, listener, local string
		host                  string
		origin, site          string // empty: no such header
		want                  string // a part of the reason; empty: it passes
	}{
		{name: "the address", host: "127.0.0.1:9080"},
		{name: "another port, as of a forwarded one", host: "127.0.0.1:1"},
		{name: "no port", host: "127.0.0.1"},
		{name: "a dot at the end", host: "localhost.:9080"},
		{name: "capitals", host: "LocalHost:9080"},
		{name: "localhost in IPv6", host: "[::1]:9080"},
		{name: "IPv4 in IPv6", host: "[::ffff:127.0.0.1]:9080"},
		{name: "the machine's name", host: "Node7.Example.com:9080"},
		{name: "its first part", host: "node7"},
		{name: "a name of --host", host: "gw.example.ORG.:80"},
		{name: "an address of --host", host: "[2001:DB8:0::7]:80"},
		{name: "the name in --listen", host: "listen.example:9080"},

		{
			name: "rebinding", host: "evil.example:9080",
			want: `"evil.example"; if it should, start it with --host evil.example`,
		},
		{
			name: "a name that begins with an own one", host: "localhost.evil.example",
			want: "--host localhost.evil.example",
		},
		{name: "a name that ends with an own one", host: "evil.localhost", want: "--host"},
		{name: "another part of the machine's name", host: "example.com", want: "--host"},
		{name: "an address in a name", host: "127.0.0.1.evil.example", want: "--host"},
		{name: "another address", host: "192.0.2.7:9080", want: "--host 192.0.2.7"},
		{name: "no address", host: "0.0.0.0:9080", want: "--host"},
		{name: "no host", host: "", want: "needs a Host"},
		{name: "only a port", host: ":9080", want: "needs a Host"},
		{name: "only a dot", host: ".", want: "needs a Host"},
		{name: "IPv6 without brackets", host: "::1:9080", want: "needs a Host"},
		{name: "half a bracket", host: "[::1", want: "needs a Host"},
		{name: "more after the bracket", host: "[::1]evil.example", want: "needs a Host"},
		{name: "a name in brackets", host: "[localhost]", want: "needs a Host"},
		{name: "a user", host: "localhost@evil.example", want: `"localhost@evil.example"`},
		{name: "other letters", host: "ĺocalhost", want: `"\u013aocalhost"`},

		{name: "all addresses, one of them", listener: any4, local: "10.0.0.5:9080", host: "10.0.0.5:9080"},
		{name: "all addresses, IPv6", listener: any6, local: "[fe80::1%eth0]:9080", host: "[fe80::1]:9080"},
		{name: "all addresses, a zone", listener: any6, local: "[fe80::1%eth0]:9080", host: "[fe80::1%25eth0]:9080"},
		{name: "all addresses, IPv4 in IPv6", listener: any6, local: "[::ffff:10.0.0.5]:9080", host: "10.0.0.5:9080"},
		{name: "all addresses, itself", listener: any6, host: "[::]:9080"},
		{name: "all addresses, of either kind", listener: any6, host: "0.0.0.0:9080"},
		{
			name: "all addresses, a container's port by loopback", listener: any4, local: "172.17.0.2:9080",
			host: "127.0.0.1:8080",
		},
		{
			name: "all addresses, a container's port from afar", listener: any4, local: "172.17.0.2:9080",
			host: "10.0.0.5:8080", want: "--host 10.0.0.5",
		},
		{
			name: "all addresses, rebinding", listener: any4, local: "10.0.0.5:9080", host: "evil.example",
			want: "--host",
		},
		{name: "one address", listener: lan, local: lan, host: lan},

		{name: "own page", host: "127.0.0.1:9080", origin: "http://127.0.0.1:9080", site: "same-origin"},
		{name: "own page, by name", host: "gw.example.org", origin: "http://GW.example.org:80"},
		{name: "own page behind TLS", host: "gw.example.org", origin: "https://gw.example.org"},
		{name: "own page in IPv6", host: "[::1]:9080", origin: "http://[::1]:9080"},
		{name: "an address typed in", host: "127.0.0.1:9080", site: "none"},
		{
			name: "another site", host: "127.0.0.1:9080", origin: "http://evil.example",
			want: `origin "http://evil.example"`,
		},
		{name: "another site with an own name", host: "evil.example", origin: "http://evil.example", want: "--host"},
		{name: "another port", host: "127.0.0.1:9080", origin: "http://127.0.0.1:3000", want: "origin"},
		{name: "no port of the origin", host: "127.0.0.1:9080", origin: "http://127.0.0.1", want: "origin"},
		{name: "another own name", host: "127.0.0.1:9080", origin: "http://localhost:9080", want: "origin"},
		{name: "no origin", host: "127.0.0.1:9080", origin: "null", want: `origin "null"`},
		{name: "another scheme", host: "127.0.0.1:9080", origin: "ftp://127.0.0.1:9080", want: "origin"},
		{name: "an origin with a path", host: "127.0.0.1:9080", origin: "http://127.0.0.1:9080/x", want: "origin"},
		{name: "an origin with a user", host: "127.0.0.1:9080", origin: "http://a@127.0.0.1:9080", want: "origin"},
		{name: "cross-site", host: "127.0.0.1:9080", site: "cross-site", want: `"cross-site"`},
		{name: "same-site", host: "127.0.0.1:9080", site: "same-site", want: `"same-site"`},
		{name: "a word to come", host: "127.0.0.1:9080", site: "near", want: `"near"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.listener == "" {
				test.listener = loopback
			}
			if test.local == "" {
				test.local = loopback
			}
			c := claim{host: test.host, local: netip.MustParseAddrPort(test.local).Addr()}
			if test.origin != "" {
				c.origin = []string{test.origin}
			}
			if test.site != "" {
				c.site = []string{test.site}
			}
			at := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(test.listener))
			got := newHostPolicy(at, "node7.example.com", others).refusal(c)
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("refused with %q, want %q", got, test.want)
			}
		})
	}
}

// A browser sends each of the headers once; of several, none may be foreign.
func TestEachHeaderIsLookedAt(t *testing.T) {
	p := newHostPolicy(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}, "", nil)
	for _, c := range []claim{
		{host: "localhost", origin: []string{"http://localhost", "http://evil.example"}},
		{host: "localhost", site: []string{"none", "cross-site"}},
		{host: "localhost", origin: []string{""}},
		{host: "localhost", site: []string{""}},
	} {
		if p.refusal(c) == "" {
			t.Errorf("%+v passes", c)
		}
	}
}

func TestValidateHosts(t *testing.T) {
	if err := ValidateHosts(
		"hosts", []string{"gw", "gw.example.org", "gw.example.org.", "192.0.2.7", "::1", "[::1]"},
	); err != nil {
		t.Error(err)
	}
	for _, host := range []string{"", "gw:9080", "http://gw", "*", "a b", ".gw", "[::1]:80", "mülheim.example"} {
		if err := ValidateHosts(
			"hosts", []string{"gw", host},
		); err == nil || !strings.Contains(err.Error(), "write a name") {
			t.Errorf("%q: %v", host, err)
		}
	}
}

// DialTo makes a client of this package connect elsewhere, as if a DNS server had said so.
func DialTo(client *http.Client, address string) {
	client.Transport.(refusals).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
}
