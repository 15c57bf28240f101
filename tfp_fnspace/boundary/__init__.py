"""What users hand over is checked here, once, with one clear error for each fault.

- `arguments`: single values, such as counts, rates and choices.
- `options`: objects that hold the arguments of one choice.
- `arrays`: anything that holds numbers, as a numeric array.
- `columns`: names of columns of data frames.
- `data`: inputs, targets and labels.
- `weights`: weights of rows and of classes.
- `memory`: what cannot fit.
- `streams`: datasets and generators of batches.

`tfp_fnspace.model.checks` puts them together for one model.
"""
