package transport

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/plimsoll-dev/plimsoll"
)

// refusedHeader carries the reason of a refusal to Client, for every protocol.
const refusedHeader = "Plimsoll-Refused"

// hostPolicy decides which requests a TCP listener answers. It refuses pages in a browser: pages of
// another site, and pages whose own name a DNS server has pointed at this listener.
type hostPolicy struct {
	listener netip.AddrPort
	names    map[string]bool // host names and IP literals, as plainHost returns them

	// recent is the Host header that was accepted last, of at most maxRecentHost bytes. It is
	// accepted at every local address.
	recent atomic.Pointer[string]
}

const maxRecentHost = 300

// claim holds a request's own statements on its target and its origin.
type claim struct {
	host   string     // Host, or :authority in HTTP/2
	origin []string   // each Origin
	site   []string   // each Sec-Fetch-Site
	local  netip.Addr // local address of the connection
}

// newHostPolicy makes the policy of a listener for the names of this machine and others. The others
// can also be addresses for Listen.
func newHostPolicy(listener net.Addr, machine string, others []string) *hostPolicy {
	p := &hostPolicy{listener: addrPort(listener), names: map[string]bool{"localhost": true}}
	short, _, _ := strings.Cut(machine, ".")
	for _, name := range append([]string{machine, short}, others...) {
		if network, rest, err := Split(name); err == nil {
			if network == "unix" {
				continue
			}
			name, _ = splitHost(rest)
		}
		if name = plainHost(name); name != "" {
			p.names[name] = true
		}
	}
	return p
}

// refusal returns the reason why a request is refused; empty: it is not.
func (p *hostPolicy) refusal(c claim) string {
	host, port := splitHost(c.host)
	if host == "" {
		return fmt.Sprintf("a request needs a Host header, with a name of the server that listens on %s", p.listener)
	}
	if !p.own(host, c.local) {
		reason := fmt.Sprintf(
			"the server that listens on %s does not go by the host %+q", p.listener, plimsoll.Shorten(host),
		)
		if hostPattern.MatchString(host) {
			reason += fmt.Sprintf("; if it should, start it with --host %s", host)
		}
		return reason
	}
	for _, origin := range c.origin {
		if !sameOrigin(origin, host, port) {
			return fmt.Sprintf("a page of origin %+q may not call the server at %+q; only its own pages may, with Host as the browser sent it",
				plimsoll.Shorten(origin), plimsoll.Shorten(c.host))
		}
	}
	for _, site := range c.site {
		if site != "none" && site != "same-origin" {
			return fmt.Sprintf("a page of another origin may not call this server (Sec-Fetch-Site is %+q); open its address in the browser itself",
				plimsoll.Shorten(site))
		}
	}
	return ""
}

// own reports whether a host, as splitHost returns it, is a name of the listener.
func (p *hostPolicy) own(host string, local netip.Addr) bool {
	if p.names[host] {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	if ip == localhost4 || ip == localhost6 || ip == p.listener.Addr() || ip == plainIP(local) {
		return true // the first two are localhost, even at the near end of a forwarded port
	}
	return ip.IsUnspecified() && p.listener.Addr().IsUnspecified() // both 0.0.0.0 and :: reach the listener
}

var (
	localhost4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	localhost6 = netip.IPv6Loopback()
)

// sameOrigin reports whether an Origin stands for pages at a host and port. The scheme may be the
// one of a proxy in front of this listener.
func sameOrigin(origin, host, port string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Opaque != "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	usual := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	if usual == "" {
		return false
	}
	fromHost, fromPort := splitHost(u.Host)
	if fromPort == "" {
		fromPort = usual
	}
	if port == "" {
		port = usual
	}
	return fromHost == host && fromPort == port
}

// splitHost splits a Host header. The host has the form of plainHost; it is empty if the header is
// malformed.
func splitHost(header string) (host, port string) {
	if inner, ok := strings.CutPrefix(header, "["); ok {
		inner, rest, ok := strings.Cut(inner, "]")
		ip, err := netip.ParseAddr(strings.ReplaceAll(inner, "%25", "%"))
		port, colon := strings.CutPrefix(rest, ":")
		if !ok || err != nil || !ip.Is6() || rest != "" && !colon {
			return "", ""
		}
		return plainIP(ip).String(), port
	}
	host, port, _ = strings.Cut(header, ":")
	if strings.Contains(port, ":") {
		return "", ""
	}
	return plainHost(host), port
}

// plainHost returns the form of a host for comparisons: a name in lower case without the root's
// dot, or an IP literal without brackets.
func plainHost(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return plainIP(ip).String()
	}
	return host
}

func plainIP(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(plainIP(ap.Addr()), ap.Port())
}

// admits refuses a request that the policy forbids.
func (p *hostPolicy) admits(w http.ResponseWriter, r *http.Request) bool {
	c := claim{host: r.Host, origin: r.Header["Origin"], site: r.Header["Sec-Fetch-Site"]}
	plain := len(c.origin) == 0 && len(c.site) == 0
	if recent := p.recent.Load(); plain && recent != nil && *recent == r.Host {
		return true
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		c.local = addrPort(local).Addr()
	}
	if reason := p.refusal(c); reason != "" {
		refuseAs(w, r, http.StatusForbidden, reason)
		return false
	}
	if plain && len(r.Host) <= maxRecentHost && p.refusal(claim{host: r.Host}) == "" {
		host := strings.Clone(r.Host)
		p.recent.Store(&host)
	}
	return true
}

// refusals is a transport that turns refusals into errors with their reason, which the protocols of
// RPC would drop.
type refusals struct {
	*http.Transport
	failed func(error) // called with each error of the transport; may be nil
}

func (t refusals) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.Transport.RoundTrip(r)
	if err != nil {
		if t.failed != nil {
			t.failed(err)
		}
		return nil, err //nolint:wrapcheck // http.Client names the call
	}
	reason, code := response.Header.Get(refusedHeader), plimsoll.CodeDenied
	switch {
	case reason == "":
		return response, nil
	case response.StatusCode == http.StatusUnauthorized:
		code = plimsoll.CodeUnauthenticated
	case response.StatusCode != http.StatusForbidden:
		return response, nil
	}
	_ = response.Body.Close() // the header has the whole reason
	return nil, plimsoll.Errorf(code, "%s", reason)
}

// machineName returns the host name of this machine; empty if it has none.
func machineName() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

var hostPattern = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?$`)

// ValidateHosts reports the first host that is neither a name nor an IP literal.
func ValidateHosts(field string, hosts []string) error {
	for _, host := range hosts {
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err != nil && !hostPattern.MatchString(host) {
			return plimsoll.Invalid(
				field,
				"%q is not a host; write a name or an IP address without scheme and port, such as gw.example.org", host,
			)
		}
	}
	return nil
}
