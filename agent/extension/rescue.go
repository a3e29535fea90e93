package extension

import (
	"context"
	"errors"
	"fmt"

	"ironroot/agent/command"
	"ironroot/agent/fault"
	"ironroot/agent/rescue"
	"ironroot/internal/password"
)

// rescuing hands the machine over to a user who logs in with a password.
func rescuing(d Deps) command.Extension {
	return command.Extension{Name: "rescue", Commands: []command.Command{{
		Name: "finalize_rescue", Destructive: true, Last: true,
		Params: []command.Param{{Name: "rescue_password"}, {Name: "hashed"}},
		Run: func(ctx context.Context, p command.Params) (any, error) {
			hash, err := rescuePassword(d, p)
			if err != nil {
				return nil, err
			}
			if err := d.Control.PrepareRescue(ctx); err != nil {
				return nil, fmt.Errorf("rescue not possible: %w", err)
			}
			if err := rescue.Save(d.System.Path, hash); err != nil {
				return nil, err
			}
			d.Control.Rescue()
			return nil, nil
		},
	}}}
}

// rescuePassword returns the hash of the password. Ironic hashes it; older releases send it as it is. No error contains
// a part of it.
func rescuePassword(d Deps, p command.Params) (password.Hash, error) {
	var text string
	var hashed bool
	if err := errors.Join(p.Decode("rescue_password", &text), p.Decode("hashed", &hashed)); err != nil {
		return password.Hash{}, err
	}
	const minSecret = 6 // bytes: anything shorter would mask parts of other words
	if len(text) >= minSecret {
		d.Journal.Redact(text)
	}
	hash := password.New
	if hashed {
		hash = password.Parse
	}
	result, err := hash(text)
	if err != nil {
		return password.Hash{}, fault.InvalidCommandParams("parameter rescue_password: %w", err)
	}
	return result, nil
}
