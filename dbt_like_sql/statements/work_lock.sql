-- Nobody touches `work` until this transaction ends; fails at once if somebody does.
lock table autofill.work in access exclusive mode nowait;
