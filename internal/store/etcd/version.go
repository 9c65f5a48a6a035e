package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/plimsoll-dev/plimsoll"
)

// minPatch has the first safe patch of each minor version of etcd 3. Before these, a keep-alive of
// a lease could succeed although the lease was revoked (etcd pull requests 20615, 20616, 20813).
// Then two processes would lead. Before 3.4.31 and 3.5.13, a former leader of etcd could revoke
// leases that were alive (16822). Before 3.5.17, a transaction could be applied in part (18799). A
// later minor version has all of them from its beginning.
var minPatch = map[int]int{4: 38, 5: 23, 6: 5}

// checkVersion returns a CodeConflict error for a version of etcd that breaks the guarantees.
func checkVersion(endpoint, version string) error {
	var major, minor, patch int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err != nil {
		return plimsoll.Errorf(plimsoll.CodeConflict,
			"etcd at %s has the version %q, which is not like 3.6.5; use a release of etcd", endpoint, version)
	}
	least, listed := minPatch[minor]
	if major > 3 || major == 3 && (listed && patch >= least || !listed && minor > 6) {
		return nil
	}
	return plimsoll.Errorf(plimsoll.CodeConflict,
		"etcd at %s has the version %s, with which two processes can lead; use at least 3.6.5, 3.5.23 or 3.4.38",
		endpoint, version)
}

// checkVersions asks every member for its version, all at the same time.
func (c Config) checkVersions(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, c.callTimeout())
	defer cancel()
	silent, wrong := make([]error, len(c.Endpoints)), make([]error, len(c.Endpoints))
	var all sync.WaitGroup
	for i, endpoint := range c.Endpoints {
		all.Go(func() {
			status, err := client.Status(ctx, endpoint)
			if err != nil {
				silent[i] = fmt.Errorf("%s: %w", endpoint, err)
				return
			}
			wrong[i] = checkVersion(endpoint, status.Version)
		})
	}
	all.Wait()
	if err := errors.Join(wrong...); err != nil {
		for _, err := range wrong { // the first has the code
			if err != nil {
				return err
			}
		}
	}
	answered := false
	for _, err := range silent {
		if err == nil {
			answered = true
			continue
		}
		c.Logger.Warn("a member of etcd does not answer", "error", err)
	}
	if !answered {
		return c.unreachable("ask etcd for its version", errors.Join(silent...))
	}
	return nil
}
