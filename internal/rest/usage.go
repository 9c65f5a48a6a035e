package rest

import (
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// userUsage is a user of /usage/users.
type userUsage struct {
	UserName string            `json:"userName"`
	Groups   map[string]string `json:"groups,omitempty"` // the group whose limit holds, by application
	Queues   *queueUsage       `json:"queues,omitempty"`
}

// groupUsage is a group of users of /usage/groups.
type groupUsage struct {
	GroupName    string      `json:"groupName"`
	Applications []string    `json:"applications,omitempty"`
	Queues       *queueUsage `json:"queues,omitempty"`
}

// queueUsage is the use of a queue and of all below it, by one user or group.
type queueUsage struct {
	QueuePath           string        `json:"queuePath"`
	ResourceUsage       amounts       `json:"resourceUsage,omitempty"`
	RunningApplications []string      `json:"runningApplications,omitempty"` // those with tasks on nodes
	MaxResources        amounts       `json:"maxResources,omitempty"`
	MaxApplications     int32         `json:"maxApplications,omitempty"`
	Children            []*queueUsage `json:"children,omitempty"`
}

const (
	usageBytes   = 512 // bytes of memory of a queueUsage
	runningBytes = 32  // of an application in one, beside its id
	anybody      = "*"
)

// usage is the use of queues by users and groups, from the jobs that have not ended.
type usage struct {
	a      *reading
	limits map[string][]plimsoll.QueueLimit // by path of the queue
	users  map[string]*userUsage
	groups map[string]*groupUsage
}

// usageOf sums up the use of all users, or of one, and of the groups whose limits hold for them.
func (a *reading) usageOf(user string) (*usage, error) {
	u := &usage{
		a: a, limits: map[string][]plimsoll.QueueLimit{}, users: map[string]*userUsage{},
		groups: map[string]*groupUsage{},
	}
	config, _, err := a.queueConfig()
	if err != nil {
		return nil, err
	}
	u.addLimits("", &config)
	live := []plimsoll.JobState{}
	for state := plimsoll.JobState(1); int(state) < plimsoll.NumJobStates; state++ {
		if !state.Ended() {
			live = append(live, state)
		}
	}
	for id, data := range a.records.Jobs(replica.JobCriteria{States: live}, "") {
		if err := a.look(); err != nil {
			return nil, err
		}
		status, err := wire.DecodeJobStatus(data)
		if err != nil {
			return nil, undecodable(id, err)
		}
		if status.State.Ended() || status.Deleted || user != "" && status.Owner != user {
			continue
		}
		if err := u.addJob(id, &status); err != nil {
			return nil, err
		}
	}
	return u, nil
}

func (u *usage) addLimits(above string, c *plimsoll.QueueConfig) {
	path := above + c.Name
	if len(c.Limits) > 0 {
		u.limits[path] = c.Limits
	}
	for i := range c.Queues {
		u.addLimits(path+".", &c.Queues[i])
	}
}

func (u *usage) addJob(id string, status *plimsoll.JobStatus) error {
	of, err := u.a.facts(id)
	if err != nil {
		return err
	}
	used := amounts{}
	tasks := int32(0)
	for i := range status.Groups {
		g := &status.Groups[i]
		n := g.Counts.OnNodes()
		tasks += n
		used.add(of.groups[g.Name].requested, int64(n))
	}
	name := u.linked(status.Queue, of.ownerGroups)
	if status.Owner != "" {
		if err := u.addUser(id, status, used, tasks > 0, name); err != nil {
			return err
		}
	}
	if name == "" {
		return nil
	}
	group := u.groups[name]
	if group == nil {
		group = &groupUsage{GroupName: name}
		u.groups[name] = group
	}
	group.Applications = append(group.Applications, id)
	ofGroup := func(path string) (plimsoll.QueueLimit, bool) { return u.limitOf(path, name, true) }
	group.Queues, err = u.add(group.Queues, id, status.Queue, used, tasks > 0, ofGroup)
	return err
}

// addUser adds a job to the use of its owner. A job without one is in no user's use: YuniKorn
// refuses an application without a user, so its list has no empty name.
func (u *usage) addUser(id string, status *plimsoll.JobStatus, used amounts, runs bool, group string) (err error) {
	user := u.users[status.Owner]
	if user == nil {
		user = &userUsage{UserName: strings.Clone(status.Owner), Groups: map[string]string{}}
		u.users[user.UserName] = user
	}
	if group != "" {
		user.Groups[id] = group
	}
	limit := func(path string) (plimsoll.QueueLimit, bool) { return u.limitOf(path, status.Owner, false) }
	user.Queues, err = u.add(user.Queues, id, status.Queue, used, runs, limit)
	return err
}

// limitOf returns the limit of a queue for a user or a group: the one that names it, or else the
// one for all others.
func (u *usage) limitOf(path, name string, group bool) (found plimsoll.QueueLimit, ok bool) {
	for _, l := range u.limits[path] {
		named := l.Users
		if group {
			named = l.Groups
		}
		if slices.Contains(named, name) {
			return l, true
		}
		if slices.Contains(named, anybody) {
			found, ok = l, true
		}
	}
	return found, ok
}

// linked returns the group whose limits hold for an owner: from the leaf upwards, the first that a
// queue names, or the one for all others of the first queue that has it.
func (u *usage) linked(path string, groups []string) string {
	for ; path != ""; path = parentOf(path) {
		wildcard := false
		for _, l := range u.limits[path] {
			for _, name := range l.Groups {
				if slices.Contains(groups, name) {
					return name
				}
				wildcard = wildcard || name == anybody
			}
		}
		if wildcard {
			return anybody
		}
	}
	return ""
}

// add adds the use of a job to the queues from the root down to its leaf, and returns the root.
func (u *usage) add(
	top *queueUsage, id, leaf string, used amounts, runs bool, limit func(path string) (plimsoll.QueueLimit, bool),
) (*queueUsage, error) {
	var above *queueUsage
	for end := strings.IndexByte(leaf+".", '.'); ; {
		path := leaf[:end]
		q := top
		if above != nil {
			i := slices.IndexFunc(above.Children, func(c *queueUsage) bool { return c.QueuePath == path })
			if q = nil; i >= 0 {
				q = above.Children[i]
			}
		}
		if q == nil {
			if err := u.a.state.hold(usageBytes + len(path)); err != nil {
				return top, err
			}
			q = &queueUsage{QueuePath: strings.Clone(path), ResourceUsage: amounts{}}
			if l, has := limit(path); has {
				q.MaxResources, q.MaxApplications = amountsOf(l.Max), l.MaxJobs
			}
			if above != nil {
				above.Children = append(above.Children, q)
			}
		}
		if top == nil {
			top = q
		}
		if err := u.a.state.hold(runningBytes + len(id)); err != nil {
			return top, err
		}
		for name, n := range used {
			q.ResourceUsage[name] = plus(q.ResourceUsage[name], n)
		}
		if runs {
			q.RunningApplications = append(q.RunningApplications, id)
		}
		if end >= len(leaf) {
			return top, nil
		}
		above = q
		end += 1 + strings.IndexByte(leaf[end+1:]+".", '.')
	}
}

func (a *reading) usageOfUsers() error {
	u, err := a.usageOf("")
	if err != nil {
		return err
	}
	a.begin()
	for _, name := range slices.Sorted(maps.Keys(u.users)) {
		if err := a.element(u.users[name]); err != nil {
			return err
		}
	}
	a.end()
	return nil
}

func (a *reading) usageOfUser() error {
	name := a.of("user")
	u, err := a.usageOf(name)
	if err != nil {
		return err
	}
	if u.users[name] == nil {
		return plimsoll.Errorf(plimsoll.CodeNotFound, "User not found: no job of %q goes on", plimsoll.Shorten(name))
	}
	return a.add(u.users[name])
}

func (a *reading) usageOfGroups() error {
	u, err := a.usageOf("")
	if err != nil {
		return err
	}
	a.begin()
	for _, name := range slices.Sorted(maps.Keys(u.groups)) {
		if err := a.element(u.groups[name]); err != nil {
			return err
		}
	}
	a.end()
	return nil
}

func (a *reading) usageOfGroup() error {
	name := a.of("group")
	u, err := a.usageOf("")
	if err != nil {
		return err
	}
	if u.groups[name] == nil {
		return plimsoll.Errorf(plimsoll.CodeNotFound,
			"Group not found: no job goes on for which a limit of the group %q holds", plimsoll.Shorten(name))
	}
	return a.add(u.groups[name])
}
