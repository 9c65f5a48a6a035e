package queuerule

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// Job is the part of a job that rules and lists look at.
type Job struct {
	Owner  string
	Groups []string // of users, that the owner is in
	Queue  string   // that the job asks for; may be short or empty
	Tags   map[string]string
}

// JobOf returns the part of a specification that rules and lists look at.
func JobOf(spec *plimsoll.JobSpec) Job {
	return Job{Owner: spec.Owner, Groups: spec.OwnerGroups, Queue: spec.Queue, Tags: spec.Tags}
}

// Queue has the properties of a queue that the rules look at.
type Queue struct {
	Leaf, Draining bool
	Submit, Admin  *plimsoll.AccessList // nil: the configuration states none
}

// Find looks a queue up by its path. root must exist.
type Find func(path string) (q Queue, found bool)

// Choice is the queue of a job.
type Choice struct {
	Path string // in full
	Make bool   // the queue does not exist, and the nearest one above that does is a parent
}

// Place chooses the queue of a job. The error is CodeInvalid, with the answer of each rule;
// CodeDenied if a queue was named and the owner may not submit to it; CodeConflict if it drains.
func (s *Set) Place(job Job, find Find) (Choice, error) {
	if len(s.rules) == 0 {
		choice, err := s.named(&job, find)
		if err != nil && job.forced() {
			if recovery, why := s.suits(&job, RecoveryQueue, true, find); why == "" {
				return recovery, nil
			}
		}
		return choice, err
	}
	var said []string
	for i := range s.rules {
		r := &s.rules[i]
		choice, why, err := s.ask(r, &job, find)
		if err != nil {
			return Choice{}, plimsoll.Invalid(
				"queue", "placement rule %d, %s, cannot be followed: %v", i+1, r.name, err,
			)
		}
		if why == "" {
			return choice, nil
		}
		said = append(said, fmt.Sprintf("rule %d, %s: %s", i+1, r.name, why))
	}
	if job.forced() {
		if choice, why := s.suits(&job, RecoveryQueue, true, find); why == "" {
			return choice, nil
		}
	}
	choice, why := s.suits(&job, plimsoll.DefaultQueue, false, find)
	if why == "" {
		return choice, nil
	}
	return Choice{}, plimsoll.Invalid("queue", "no placement rule gives a queue for the job of %s: %s; %s",
		strconv.Quote(job.Owner), strings.Join(said, "; "), why)
}

// named checks the queue that a job names. There are no rules.
func (s *Set) named(job *Job, find Find) (Choice, error) {
	path := Full(job.Queue)
	if path == "" {
		path = plimsoll.DefaultQueue
	}
	q, found := find(path)
	switch {
	case !found:
		return Choice{}, plimsoll.Invalid("queue", "%q does not exist", path)
	case !q.Leaf:
		return Choice{}, plimsoll.Invalid("queue", "%q is not a leaf and takes no jobs", path)
	case q.Draining:
		return Choice{}, plimsoll.Errorf(
			plimsoll.CodeConflict, "queue: %q is being removed and takes no new jobs", path,
		)
	case !s.MaySubmit(job, path, find):
		return Choice{}, plimsoll.Errorf(plimsoll.CodeDenied, "queue: %s", s.noAccess(job, path))
	}
	return Choice{Path: path}, nil
}

// Full returns the path that a submitter means: in lower case and beginning with root. An empty
// name stays empty.
func Full(name string) string {
	name = strings.ToLower(name)
	if name == "" || qualified(name) {
		return name
	}
	return plimsoll.RootQueue + "." + name
}

func qualified(name string) bool {
	return name == plimsoll.RootQueue || strings.HasPrefix(name, plimsoll.RootQueue+".")
}

// ask returns the queue that a rule gives, or why it gives none. The error is that of a rule that
// cannot be followed.
func (s *Set) ask(r *rule, job *Job, find Find) (choice Choice, why string, err error) {
	path, why, err := r.path(job, find)
	if why != "" || err != nil {
		return Choice{}, why, err
	}
	choice, why = s.suits(job, path, r.create, find)
	return choice, why, nil
}

// suits reports why a queue does not take a job; empty if it does.
func (s *Set) suits(job *Job, path string, create bool, find Find) (choice Choice, why string) {
	q, found := find(path)
	switch {
	case !found && !create:
		return choice, path + " does not exist"
	case found && !q.Leaf:
		return choice, path + " is a parent of queues and takes no jobs"
	case !s.MaySubmit(job, path, find):
		return choice, s.noAccess(job, path)
	case q.Draining:
		return choice, path + " is being removed"
	case found:
		return Choice{Path: path}, ""
	}
	if above, at := nearest(path, find); above.Leaf {
		return choice, path + " cannot be made below " + at + ", which is a leaf"
	} else if above.Draining {
		return choice, path + " cannot be made below " + at + ", which is being removed"
	}
	return Choice{Path: path, Make: true}, ""
}

func (s *Set) noAccess(job *Job, path string) string {
	return fmt.Sprintf(
		"%q may not submit to %s; its submitacl, or that of a queue above, must name them", job.Owner, path,
	)
}

// nearest returns the nearest queue above a path that exists.
func nearest(path string, find Find) (q Queue, at string) {
	for {
		dot := strings.LastIndexByte(path, '.')
		if dot < 0 {
			return Queue{}, path // root exists
		}
		path = path[:dot]
		if q, found := find(path); found {
			return q, path
		}
	}
}

// MaySubmit reports whether the owner of a job may submit to a queue, which need not exist.
func (s *Set) MaySubmit(job *Job, path string, find Find) bool {
	if !s.lists {
		return true
	}
	for {
		if q, found := find(path); found &&
			(q.Submit.Allows(job.Owner, job.Groups) || q.Admin.Allows(job.Owner, job.Groups)) {
			return true
		}
		dot := strings.LastIndexByte(path, '.')
		if dot < 0 {
			return false
		}
		path = path[:dot]
	}
}

// path returns the path of the queue that a rule names, or why it names none.
func (r *rule) path(job *Job, find Find) (path, why string, err error) {
	var name string
	switch r.name {
	case "user":
		name = undotted(job.Owner)
	case "provided":
		if name = job.Queue; name == "" {
			return "", "the job names no queue", nil
		}
		if !qualified(strings.ToLower(name)) && r.parent != nil {
			name = undotted(name)
		}
	case "fixed":
		if name = r.value; name == "" {
			return "", "", fmt.Errorf("it has no value: give the path of a queue")
		}
	case "tag":
		if name = job.tag(r.value); name == "" {
			return "", "the job has no tag " + strconv.Quote(r.value), nil
		}
		if !qualified(strings.ToLower(name)) {
			name = undotted(name)
		}
	case "recovery":
		if !job.forced() {
			return "", "the job has no tag " + forceTag, nil
		}
		return RecoveryQueue, "", nil
	default:
		return "", "", fmt.Errorf("there is no such rule; possible are user, fixed, provided, tag and recovery")
	}
	if !r.filter.admits(job) {
		return "", "its filter leaves " + strconv.Quote(job.Owner) + " out", nil
	}
	path = strings.ToLower(name)
	if r.name == "user" || !qualified(path) {
		above, why, err := r.above(job, find)
		if why != "" || err != nil {
			return "", why, err
		}
		path = above + "." + path
	}
	if err := plimsoll.ValidateQueuePath("queue", path); err != nil {
		return "", "", fmt.Errorf("%q is no possible queue: a name has 1 to 64 letters, digits and _ : # / @ -, "+
			"and a queue at most %d levels", path, plimsoll.MaxQueueDepth)
	}
	if _, found := find(path); !found && !r.create {
		return "", path + " does not exist, and the rule has no create", nil
	}
	return path, "", nil
}

// above returns the path of the queue below which a rule names one, or why there is none.
func (r *rule) above(job *Job, find Find) (path, why string, err error) {
	if r.parent == nil {
		return plimsoll.RootQueue, "", nil
	}
	if path, why, err = r.parent.path(job, find); why != "" || err != nil {
		return "", why, err
	}
	if q, found := find(path); found && q.Leaf {
		return "", "", fmt.Errorf("its parent rule gives %s, which is a leaf", path)
	}
	return path, "", nil
}

// undotted makes one name of a text with dots, as YuniKorn does.
func undotted(text string) string { return strings.ReplaceAll(text, ".", "_dot_") }

// tag returns the value of a tag, whose name is compared without regard to case.
func (j *Job) tag(name string) string {
	if value, ok := j.Tags[name]; ok {
		return value
	}
	for _, key := range slices.Sorted(maps.Keys(j.Tags)) {
		if strings.EqualFold(key, name) {
			return j.Tags[key]
		}
	}
	return ""
}

func (j *Job) forced() bool {
	forced, err := strconv.ParseBool(j.tag(forceTag))
	return err == nil && forced
}
