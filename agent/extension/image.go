package extension

import (
	"context"

	"ironroot/agent/command"
	"ironroot/agent/imaging"
)

// image installs the boot loader of a deployed image.
func image(d Deps) command.Extension {
	return command.Extension{Name: "image", Commands: []command.Command{{
		Name: "install_bootloader", Async: true, Destructive: true,
		Params: []command.Param{
			{Name: "root_uuid", Required: true},
			{Name: "efi_system_part_uuid"},
			{Name: "prep_boot_part_uuid"},
			{Name: "target_boot_mode"},
			{Name: "ignore_bootloader_failure"},
		},
		Validate: func(_ context.Context, p command.Params) error {
			_, err := bootloaderParams(p)
			return err
		},
		Run: func(ctx context.Context, p command.Params) (any, error) {
			b, err := bootloaderParams(p)
			if err != nil {
				return nil, err
			}
			return nil, d.Imager.InstallBootloader(ctx, b)
		},
	}}}
}

func bootloaderParams(p command.Params) (imaging.Bootloader, error) {
	b := imaging.Bootloader{TargetBootMode: "bios"}
	for name, into := range map[string]any{
		"root_uuid":                 &b.RootUUID,
		"efi_system_part_uuid":      &b.EFISystemPartUUID,
		"prep_boot_part_uuid":       &b.PRePBootPartUUID,
		"target_boot_mode":          &b.TargetBootMode,
		"ignore_bootloader_failure": &b.IgnoreFailure,
	} {
		if err := p.Decode(name, into); err != nil {
			return b, err
		}
	}
	return b, nil
}
